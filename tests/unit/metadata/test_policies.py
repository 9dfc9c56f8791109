"""Policies: precedence, effect, and immediate notification of the engine."""

import pytest

from penstock.metadata import changes_of, entries_of, restore
from penstock.metadata.argument_table import PLANNED_POLICY_KEYS
from penstock.metadata.commands import DeletePolicy, SetPolicy
from penstock.metadata.effects import PersistPolicies, PutExchange, PutQueue
from penstock.metadata.policies import ApplyTo, Policy, make_policy
from penstock.metadata.policy_rules import POLICIES_MAX, effective_queue
from penstock.model.errors import InvalidArgumentError, NotFoundError, RefusedError, TooLargeError
from penstock.model.names import QueueName, VhostName
from support.machine import Machine


@pytest.fixture
def machine():
    return Machine()


def put(machine, name, pattern, definition, *, operator=False, **fields):
    return machine.decide(SetPolicy(Policy(name, pattern, definition, **fields), operator))


def clear(machine, name, *, operator=False):
    return machine.decide(DeletePolicy(name, operator))


def changed(decision):
    """Return the engine's changes: names with an alternate or a durability."""
    return {
        change.exchange.name: change.exchange.alternate if isinstance(change, PutExchange) else None
        for change in decision.changes
        if isinstance(change, PutExchange)
    } | {change.queue.name: change.queue.durability for change in decision.changes if isinstance(change, PutQueue)}


def test_a_policy_is_in_force_when_it_is_set_and_ends_when_it_is_cleared(machine):
    machine.exchange("orders")
    machine.exchange("other")

    assert changed(put(machine, "lost", "^orders$", {"alternate-exchange": "amq.fanout"})) == {"orders": "amq.fanout"}
    assert changed(clear(machine, "lost")) == {"orders": None}


def test_what_is_declared_later_has_it_too(machine):
    put(machine, "lost", "^orders", {"alternate-exchange": "amq.fanout", "durability": "disk"})

    assert changed(machine.exchange("orders-1")) == {"orders-1": "amq.fanout"}
    assert changed(machine.queue("orders-2")) == {"orders-2": "disk"}
    assert changed(machine.queue("my-orders")) == {"my-orders": None}


def test_predeclared_exchanges_have_policies_and_the_default_one_has_none(machine):
    assert set(changed(put(machine, "p", ".*", {"alternate-exchange": "x"}))) == {
        "amq.direct",
        "amq.fanout",
        "amq.headers",
        "amq.match",
        "amq.topic",
    }


def test_the_highest_priority_counts_and_nothing_of_the_others(machine):
    machine.queue("q")
    machine.exchange("q")
    put(machine, "low", "^q$", {"durability": "disk", "alternate-exchange": "a"}, priority=1)

    assert changed(put(machine, "high", "^q$", {"durability": "os"}, priority=2)) == {"q": "os"}
    assert machine.changes[-1].queue.durability == "os"
    high = [change for change in machine.changes if isinstance(change, PutExchange) and change.exchange.name == "q"]
    assert high[-1].exchange.alternate is None, "the other policy's key does not shine through"
    assert changed(put(machine, "same", "^q$", {"durability": "disk"}, priority=2)) == {}, "the first by name counts"


@pytest.mark.parametrize(
    ("apply_to", "expected"),
    [
        (ApplyTo.ALL, {"amq.direct", "q"}),
        (ApplyTo.QUEUES, {"q"}),
        (ApplyTo.CLASSIC_QUEUES, {"q"}),
        (ApplyTo.EXCHANGES, {"amq.direct"}),
        (ApplyTo.STREAMS, set()),
    ],
)
def test_a_policy_is_for_the_kinds_it_says(machine, apply_to, expected):
    machine.queue("q")

    decision = put(machine, "p", "^(q|amq.direct)$", {"durability": "os", "alternate-exchange": "x"}, apply_to=apply_to)

    assert set(changed(decision)) == expected


STREAM = {"x-queue-type": "stream"}


def bounds(decision):
    """Return the engine's limits of streams: age in ms and bytes."""
    found = [change.queue for change in decision.changes if isinstance(change, PutQueue)]
    return {queue.name: (queue.retention.age_ms_max, queue.retention.bytes_max) for queue in found if queue.retention}


def test_the_bounds_of_a_stream_change_while_it_is_there(machine):
    machine.queue("s", arguments=STREAM)
    streams = {"apply_to": ApplyTo.STREAMS}

    assert bounds(put(machine, "p", "^s", {"max-age": "1h", "max-length-bytes": 5}, **streams)) == {"s": (3_600_000, 5)}
    assert bounds(put(machine, "p", "^s", {"max-age": "10s"}, **streams)) == {"s": (10_000, 0)}
    assert bounds(machine.queue("s2", arguments=STREAM)) == {"s2": (10_000, 0)}
    assert bounds(clear(machine, "p")) == {"s": (0, 0), "s2": (0, 0)}


def test_an_operator_bounds_streams_that_say_more_themselves(machine):
    machine.queue("long", arguments={**STREAM, "x-max-age": "7D", "x-max-length-bytes": 3})
    bound = {"max-age": "1D", "max-length-bytes": 9}

    assert bounds(put(machine, "p", ".*", bound, operator=True, apply_to=ApplyTo.STREAMS)) == {"long": (86_400_000, 3)}


@pytest.mark.parametrize(
    ("apply_to", "expected"),
    [(ApplyTo.QUEUES, {"q", "s"}), (ApplyTo.CLASSIC_QUEUES, {"q"}), (ApplyTo.STREAMS, {"s"})],
)
def test_a_stream_is_a_queue_and_no_classic_one(machine, apply_to, expected):
    machine.queue("q")
    machine.queue("s", arguments=STREAM)

    assert set(changed(put(machine, "p", "^[qs]$", {"durability": "os"}, apply_to=apply_to))) == expected


def limits(decision):
    """Return the engine's limits of classic queues."""
    found = [change.queue for change in decision.changes if isinstance(change, PutQueue)]
    return {
        queue.name: (queue.messages_max, queue.bytes_max, queue.rejects_publish, queue.expires_ms) for queue in found
    }


def test_policies_limit_classic_queues_and_the_smallest_number_holds(machine):
    machine.queue("plain")
    machine.queue("own", arguments={"x-max-length": 5, "x-overflow": "reject-publish", "x-expires": 1_000})
    machine.queue("s", arguments=STREAM)
    wanted = {"max-length": 7, "max-length-bytes": 100, "overflow": "drop-head", "expires": 500}

    assert limits(put(machine, "p", ".*", wanted)) == {
        "plain": (7, 100, False, 500),
        "own": (5, 100, True, 500),
        "s": (None, None, False, None),
    }
    lower = {"max-length": 6, "expires": 700, "max-length-bytes": 1}
    assert limits(put(machine, "o", "^[po]", lower, operator=True)) == {
        "plain": (6, 1, False, 500),
        "own": (5, 1, True, 500),
    }
    assert limits(clear(machine, "p")) == {
        "plain": (6, 1, False, 700),
        "own": (5, 1, True, 700),
        "s": (None, None, False, None),
    }


@pytest.mark.parametrize(
    ("declared", "of_policy", "limit"), [(5, 3, 3), (3, 5, 3), (-1, 5, 5), (5, -1, 5), (None, 50, 50), (None, -1, None)]
)
def test_the_lower_of_two_delivery_limits_holds(machine, declared, of_policy, limit):
    own = {} if declared is None else {"x-delivery-limit": declared}
    machine.queue("q", arguments={"x-queue-type": "quorum", **own})
    put(machine, "p", "^q$", {"delivery-limit": of_policy})

    assert effective_queue(machine.state, machine.state.queues["q"]).delivery_limit == limit


def test_a_smaller_number_of_a_policy_leaves_a_declared_limit_of_a_stream(machine):
    machine.queue("s", arguments={**STREAM, "x-max-length-bytes": 9})

    assert bounds(put(machine, "p", "^s$", {"max-length-bytes": 5})) == {}


def test_what_a_declaration_says_goes_before_a_policy(machine):
    machine.queue("q", arguments={"x-durability": "os"})
    machine.exchange("x", arguments={"x-alternate-exchange": "mine"})

    assert changed(put(machine, "p", "^[qx]$", {"durability": "disk", "alternate-exchange": "other"})) == {}


def test_an_operator_s_policy_cannot_be_undercut_and_may_be_exceeded(machine):
    machine.queue("careless", arguments={"x-durability": "os"})
    machine.queue("careful", arguments={"x-durability": "disk"})
    machine.queue("plain")

    assert changed(put(machine, "safe", ".*", {"durability": "disk"}, operator=True)) == {
        "careless": "disk",
        "careful": "disk",
        "plain": "disk",
    }
    assert changed(put(machine, "fast", ".*", {"durability": "os"})) == {}
    clear(machine, "safe", operator=True)
    assert changed(put(machine, "calm", ".*", {"durability": "os"}, operator=True)) == {}, "os asks for nothing more"


def test_an_operator_s_level_is_the_least_that_a_publisher_can_choose(machine):
    machine.queue("q", arguments={"x-durability": "disk"})
    put(machine, "mine", "q", {"durability": "disk"})
    assert least(machine.queue("q2")) == {"q2": None}, "the publisher may choose less than any other policy"

    assert least(put(machine, "safe", "^q", {"durability": "disk"}, operator=True)) == {"q": "disk", "q2": "disk"}
    assert least(machine.queue("q3")) == {"q3": "disk"}
    again = restore(VhostName("/"), entries_of(machine.state), 1)
    found = {change.queue.least_durability for change in changes_of(again) if isinstance(change, PutQueue)}
    assert found == {"disk"}, "after a start too"
    assert least(clear(machine, "safe", operator=True)) == {"q": None, "q2": None, "q3": None}
    assert least(put(machine, "calm", "^q", {"durability": "os"}, operator=True)) == {}


def least(decision):
    """Return the engine's minimum durability of queues."""
    return {
        change.queue.name: change.queue.least_durability for change in decision.changes if isinstance(change, PutQueue)
    }


def test_setting_the_same_again_changes_nothing(machine):
    machine.queue("q")
    put(machine, "p", "q", {"durability": "disk"})

    assert put(machine, "p", "q", {"durability": "disk"}).entries == []


def test_policies_are_there_again_after_a_start(machine):
    machine.queue("q")
    put(machine, "p", "q", {"durability": "disk"})
    put(machine, "o", "q", {"durability": "disk"}, operator=True)

    again = restore(VhostName("/"), entries_of(machine.state), 1)

    assert (again.policies, again.operator_policies) == (machine.state.policies, machine.state.operator_policies)
    (queue,) = (change.queue for change in changes_of(again) if isinstance(change, PutQueue))
    assert queue.durability == "disk"
    assert again.queues[QueueName("q")].durability is None, "the declaration stays what it was"


def test_every_change_persists_all_of_a_kind(machine):
    put(machine, "a", "q", {"durability": "disk"})
    decision = put(machine, "b", "q", {"durability": "os"})

    (entry,) = decision.entries
    assert isinstance(entry, PersistPolicies)
    assert [policy.name for policy in entry.policies] == ["a", "b"]


@pytest.mark.parametrize("key", sorted(PLANNED_POLICY_KEYS))
def test_a_key_that_does_not_exist_yet_is_refused_by_name(machine, key):
    with pytest.raises(InvalidArgumentError, match=f"'{key}', which is not supported yet"):
        put(machine, "p", ".*", {key: 1})


@pytest.mark.parametrize(
    ("definition", "fields", "rule"),
    [
        ({"colour": "red"}, {}, "'colour', which is unknown"),
        ({}, {}, "sets nothing"),
        ({"durability": "tape"}, {}, "use os or disk"),
        ({"durability": 1}, {}, "use os or disk"),
        ({"alternate-exchange": ""}, {}, "name of an exchange"),
        ({"durability": "os"}, {"priority": 128}, "from -128 to 127"),
        ({"alternate-exchange": "x"}, {"operator": True}, "is not an operator's"),
        ({"max-age": "1h"}, {}, "let it apply to 'streams'"),
        ({"max-age": "1h"}, {"apply_to": ApplyTo.QUEUES}, "only streams have it"),
        ({"max-age": "soon"}, {"apply_to": ApplyTo.STREAMS}, "such as '7D'"),
        ({"max-length-bytes": 0}, {"apply_to": ApplyTo.STREAMS}, "at least 1"),
    ],
)
def test_what_cannot_be_honoured_is_refused(machine, definition, fields, rule):
    with pytest.raises(RefusedError, match=rule):
        put(machine, "p", ".*", definition, **fields)
    assert machine.state.policies == {}


def test_a_policy_that_is_not_there_cannot_be_cleared(machine):
    with pytest.raises(NotFoundError, match="policy 'p'"):
        clear(machine, "p")
    put(machine, "p", "q", {"durability": "disk"})
    with pytest.raises(NotFoundError):
        clear(machine, "p", operator=True)


def test_there_is_a_bound_on_the_memory_of_their_patterns(machine, monkeypatch):
    put(machine, "one", r"\w{8}", {"durability": "os"})
    size = machine.state.policies["one"].compiled.size
    monkeypatch.setattr("penstock.metadata.policy_rules.PATTERNS_BYTES_MAX", 2 * size)

    put(machine, "two", r"\w{8}", {"durability": "os"})
    put(machine, "two", r"\w{8}", {"durability": "disk"})
    with pytest.raises(TooLargeError, match="all policies of the virtual host"):
        put(machine, "three", r"\w{8}", {"durability": "os"})
    put(machine, "three", r"\w{8}", {"durability": "disk"}, operator=True)


def test_a_changed_policy_is_matched_with_names_before_all_policies_are(machine, monkeypatch):
    """Of 10,000 queues and 50 policies a change affects few."""
    for number in range(20):
        machine.queue(f"q{number}")
        put(machine, f"p{number}", f"^q{number}$", {"durability": "disk"})
    looked_up = []
    monkeypatch.setattr(
        "penstock.metadata.policy_rules.matching",
        lambda policies, name, target: looked_up.append(name) or None,  # type: ignore[func-returns-value]
    )

    put(machine, "p3", "^q4$", {"durability": "disk"})

    assert set(looked_up) == {"q3", "q4"}


def test_there_is_a_bound_on_their_number(machine):
    machine.state.policies = {f"p{n}": Policy(f"p{n}", "q", {"durability": "os"}) for n in range(POLICIES_MAX)}
    with pytest.raises(InvalidArgumentError, match="one more than"):
        put(machine, "more", "q", {"durability": "os"})
    put(machine, "p7", "q", {"durability": "disk"})


@pytest.mark.parametrize("apply_to", ["", "Queues", "everything"])
def test_an_unknown_kind_is_refused(apply_to):
    with pytest.raises(InvalidArgumentError, match="use one of all"):
        make_policy("p", ".*", apply_to, 0, {"durability": "os"})


def test_a_policy_is_for_queues_of_one_type_or_of_all(machine):
    machine.queue("c")
    machine.queue("q", arguments={"x-queue-type": "quorum"})
    for apply_to, both in (("classic_queues", (1, None)), ("quorum_queues", (None, 1)), ("queues", (1, 1))):
        put(machine, "p", ".*", {"message-ttl": 1}, apply_to=ApplyTo(apply_to))

        queues = [machine.queue_named(name) for name in ("c", "q")]
        assert tuple(effective_queue(machine.state, queue).message_ttl_ms for queue in queues) == both, apply_to
