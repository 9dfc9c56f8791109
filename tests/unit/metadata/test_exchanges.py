"""Declaring, deleting and losing exchanges."""

import pytest

from penstock.metadata.effects import (
    DropExchange,
    ExchangeDeclared,
    PersistExchange,
    PersistExchangeDeleted,
    PersistQueueDeleted,
    PersistUnbound,
    PutExchange,
)
from penstock.metadata.exchanges import check_publish
from penstock.model.arguments import Value
from penstock.model.errors import AccessRefusedError, InvalidArgumentError, NotFoundError, PreconditionFailedError
from penstock.model.names import ExchangeName
from penstock.model.records import ExchangeKind, HashAlgorithm, HashProperty
from support.machine import Machine

PREDECLARED = {
    "": "direct",
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
}


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_the_predeclared_exchanges_are_there(machine: Machine) -> None:
    assert {name: exchange.kind.value for name, exchange in machine.state.exchanges.items()} == PREDECLARED
    assert all(exchange.durable for exchange in machine.state.exchanges.values())


@pytest.mark.parametrize("name", PREDECLARED)
def test_a_predeclared_exchange_cannot_be_deleted(machine: Machine, name: str) -> None:
    with pytest.raises(AccessRefusedError, match="predeclared"):
        machine.delete_exchange(name)


def test_a_predeclared_exchange_can_be_declared_as_it_is_only(machine: Machine) -> None:
    assert machine.exchange("amq.topic", "topic").changes == []
    with pytest.raises(PreconditionFailedError, match="type"):
        machine.exchange("amq.topic", "direct")
    with pytest.raises(AccessRefusedError, match="default exchange"):
        machine.exchange("", "direct")


def test_reserved_names_are_refused(machine: Machine) -> None:
    with pytest.raises(AccessRefusedError, match="reserved"):
        machine.exchange("amq.mine")


@pytest.mark.parametrize("kind", list(ExchangeKind))
def test_every_kind_can_be_declared_and_is_written(machine: Machine, kind: ExchangeKind) -> None:
    arguments: dict[str, Value] = {"x-delayed-type": "topic"} if kind is ExchangeKind.DELAYED else {}
    decision = machine.exchange("x", kind.value, arguments)

    exchange = machine.exchange_named("x")
    assert exchange.kind is kind
    assert decision.answer == ExchangeDeclared(exchange, is_new=True)
    assert decision.entries == [PersistExchange(exchange)]
    assert decision.changes == [PutExchange(exchange)]


@pytest.mark.parametrize("kind", ["spam", "x-jms-topic"])
def test_other_kinds_are_refused_by_name(machine: Machine, kind: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"'{kind}' that is unknown"):
        machine.exchange("x", kind)


@pytest.mark.parametrize("length", [0, -1, 1_001, "20", 2.5, True])
def test_a_history_has_from_one_to_a_thousand_messages(machine: Machine, length: Value) -> None:
    with pytest.raises(InvalidArgumentError, match="write a number of messages from 1 to 1,000"):
        machine.exchange("x", "x-recent-history", {"x-recent-history-length": length})


def test_an_exchange_keeps_twenty_messages_unless_it_says_otherwise(machine: Machine) -> None:
    machine.exchange("x", "x-recent-history")
    machine.exchange("y", "x-recent-history", {"x-recent-history-length": 7})
    machine.exchange("z", "fanout", {"x-recent-history-length": 7})

    assert [machine.exchange_named(name).history_length for name in "xyz"] == [20, 7, None]


def test_a_delayed_exchange_does_not_keep_messages(machine: Machine) -> None:
    with pytest.raises(InvalidArgumentError, match="'x-delayed-type' whose value 'x-recent-history' is not valid"):
        machine.exchange("x", "x-delayed-message", {"x-delayed-type": "x-recent-history"})


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("type", {"kind": "topic"}),
        ("durable", {"durable": False}),
        ("auto_delete", {"auto_delete": True}),
        ("internal", {"internal": True}),
    ],
)
def test_a_mismatch_is_refused_by_the_name_of_the_field(
    machine: Machine, field: str, change: dict[str, bool | str]
) -> None:
    machine.exchange("x", "direct")

    with pytest.raises(PreconditionFailedError) as refused:
        machine.exchange("x", **change)  # type: ignore[arg-type]
    assert refused.value.field == field


def test_both_names_of_the_alternate_exchange_are_one(machine: Machine) -> None:
    machine.exchange("x", arguments={"x-alternate-exchange": "other"})

    assert machine.exchange_named("x").alternate == "other"
    assert machine.exchange("x", arguments={"alternate-exchange": "other"}).changes == []
    with pytest.raises(PreconditionFailedError, match="alternate-exchange"):
        machine.exchange("x", arguments={"alternate-exchange": "another"})
    with pytest.raises(PreconditionFailedError, match="alternate-exchange"):
        machine.exchange("x")


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"x-persist-ms": 1}, "'x-persist-ms' that is not supported yet"),
        ({"x-penstock-id": 1}, "'x-penstock-id' that only the broker sets"),
        ({"x-delayed-exchange": "yes"}, "'x-delayed-exchange' whose value 'yes' is not valid"),
        ({"alternate-exchange": 1}, "'alternate-exchange' whose value 1 is not valid"),
        ({"alternate-exchange": "a", "x-alternate-exchange": "b"}, "two different alternate exchanges"),
    ],
)
def test_an_argument_that_is_not_acted_upon_is_refused(
    machine: Machine, arguments: dict[str, Value], rule: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=rule):
        machine.exchange("x", arguments=arguments)


def test_other_arguments_are_kept(machine: Machine) -> None:
    machine.exchange("x", arguments={"note": "mine"})

    assert machine.exchange_named("x").arguments == {"note": "mine"}


def test_a_passive_declare_only_looks(machine: Machine) -> None:
    with pytest.raises(NotFoundError):
        machine.exchange("x", passive=True)
    machine.exchange("x", "topic", durable=False)

    assert machine.exchange("x", "direct", passive=True).changes == []


def test_an_exchange_in_use_stays_when_asked(machine: Machine) -> None:
    machine.exchange("x", "fanout")
    machine.queue("a")
    machine.bind("x", "a")

    with pytest.raises(PreconditionFailedError, match="has bindings") as refused:
        machine.delete_exchange("x", if_unused=True)
    assert refused.value.field == "if_unused"
    machine.unbind("x", "a")
    machine.delete_exchange("x", if_unused=True)

    assert not machine.has_exchange("x")


def test_being_a_destination_is_no_use(machine: Machine) -> None:
    machine.exchange("x", "fanout")
    machine.bind("amq.topic", "x", "#")

    machine.delete_exchange("x", if_unused=True)

    assert machine.state.binding_count == 0


def test_a_deleted_exchange_loses_its_bindings_in_both_directions(machine: Machine) -> None:
    machine.exchange("x", "fanout")
    machine.queue("a")
    machine.bind("x", "a")
    machine.bind("x", "x")
    machine.bind("amq.topic", "x", "#")
    machine.bind("amq.topic", "a", "#")

    decision = machine.delete_exchange("x")

    assert decision.entries == [PersistExchangeDeleted(ExchangeName("x"))]
    assert decision.changes[-1] == DropExchange(ExchangeName("x"))
    assert [binding.destination for binding in machine.state.bindings()] == ["a"]


def test_an_auto_delete_exchange_goes_with_its_last_binding(machine: Machine) -> None:
    machine.exchange("x", "direct", auto_delete=True)
    machine.queue("a")
    machine.bind("x", "a", "one")
    machine.bind("x", "a", "two")

    machine.unbind("x", "a", "one")
    assert machine.has_exchange("x")
    decision = machine.unbind("x", "a", "two")

    assert not machine.has_exchange("x")
    assert [type(entry) for entry in decision.entries] == [PersistUnbound, PersistExchangeDeleted]


def test_an_auto_delete_exchange_that_was_never_bound_stays(machine: Machine) -> None:
    machine.exchange("x", auto_delete=True)
    machine.queue("a")
    machine.delete_queue("a")

    assert machine.has_exchange("x")


def test_a_chain_of_auto_delete_exchanges_goes_to_its_end() -> None:
    length = 2_000
    machine = Machine(is_checked=False)
    for index in range(length):
        machine.exchange(f"x{index}", "fanout", auto_delete=True)
    machine.queue("a")
    for index in range(length - 1):
        machine.bind(f"x{index}", f"x{index + 1}")
    machine.bind(f"x{length - 1}", "a")

    decision = machine.delete_queue("a")

    machine.state.check_invariants()
    assert len(machine.state.exchanges) == len(PREDECLARED)
    assert isinstance(decision.entries[0], PersistQueueDeleted)
    assert len(decision.entries) == length + 1


def test_a_cycle_of_auto_delete_exchanges_ends(machine: Machine) -> None:
    machine.exchange("one", "fanout", auto_delete=True)
    machine.exchange("two", "fanout", auto_delete=True)
    machine.bind("one", "two")
    machine.bind("two", "one")

    machine.delete_exchange("one")

    assert not machine.has_exchange("two")


def test_clients_cannot_publish_to_an_internal_exchange(machine: Machine) -> None:
    machine.exchange("inner", internal=True)

    with pytest.raises(AccessRefusedError, match="is internal"):
        check_publish(machine.state, ExchangeName("inner"))
    with pytest.raises(NotFoundError):
        check_publish(machine.state, ExchangeName("nowhere"))
    check_publish(machine.state, ExchangeName(""))


HASHING = "x-consistent-hash"


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"x-algorithm": "mod"}, "'x-algorithm' whose value 'mod' is not valid"),
        ({"hash-header": ""}, "'hash-header' whose value '' is not valid"),
        ({"hash-property": "app_id"}, "'hash-property' whose value 'app_id' is not valid"),
        ({"hash-header": "a", "hash-property": "message_id"}, "hash-header and hash-property, which are mutually"),
        ({"hash-header": "a", "x-hash-on": "a"}, "hash-header and x-hash-on, which are mutually exclusive"),
    ],
)
def test_what_is_hashed_and_how_is_checked(machine: Machine, arguments: dict[str, Value], rule: str) -> None:
    with pytest.raises(InvalidArgumentError, match=rule):
        machine.exchange("x", HASHING, arguments)
    with pytest.raises(InvalidArgumentError, match=rule):
        machine.exchange("x", "x-delayed-message", {**arguments, "x-delayed-type": HASHING})


def test_both_brokers_names_say_what_is_hashed(machine: Machine) -> None:
    machine.exchange("x", HASHING, {"x-hash-on": "user", "x-algorithm": "jump"})
    machine.exchange("y", HASHING, {"hash-header": "user"})
    machine.exchange("z", HASHING, {"hash-property": "message_id"})

    x, y, z = (machine.exchange_named(name) for name in "xyz")
    assert (x.hash_header, x.algorithm, y.hash_header, y.algorithm) == (
        "user",
        HashAlgorithm.JUMP,
        "user",
        HashAlgorithm.RING,
    )
    assert (z.hash_header, z.hash_property) == (None, HashProperty.MESSAGE_ID)


@pytest.mark.parametrize("key", ["", "a", "-1", "1.5", "0", "00", "2147483648", "1" * 1000, "\u0661"])
def test_a_weight_is_a_bounded_number(machine: Machine, key: str) -> None:
    machine.exchange("x", HASHING)
    machine.queue("q")

    with pytest.raises(InvalidArgumentError) as refused:
        machine.bind("x", "q", key)
    assert refused.value.field == "routing_key"
    machine.bind("x", "q", "1000000000")


def test_a_local_random_exchange_takes_queues_without_keys(machine: Machine) -> None:
    machine.exchange("x", "x-local-random")
    machine.queue("q")

    with pytest.raises(InvalidArgumentError, match="non empty binding key 'a'"):
        machine.bind("x", "q", "a")
    with pytest.raises(InvalidArgumentError, match="leads to an exchange"):
        machine.bind("x", "exchange:amq.direct", "")
    machine.bind("x", "q", "")


def test_a_delayed_exchange_says_how_it_routes(machine: Machine) -> None:
    for arguments in ({}, {"x-delayed-type": "spam"}, {"x-delayed-type": "x-delayed-message"}, {"x-delayed-type": 1}):
        with pytest.raises(InvalidArgumentError) as refused:
            machine.exchange("x", "x-delayed-message", arguments)
        assert refused.value.field == "x-delayed-type"
    machine.exchange("x", "x-delayed-message", {"x-delayed-type": "topic"})
    machine.exchange("y", "topic", {"x-delayed-exchange": True})

    x, y = machine.exchange_named("x"), machine.exchange_named("y")
    assert (x.kind, x.routing_kind, x.is_delayed) == (ExchangeKind.DELAYED, ExchangeKind.TOPIC, True)
    assert (y.kind, y.routing_kind, y.is_delayed) == (ExchangeKind.TOPIC, ExchangeKind.TOPIC, True)
