"""Declaring, deleting and losing queues."""

import pytest

from penstock.metadata.commands import DeclareQueue, PurgeQueue
from penstock.metadata.effects import (
    DropQueue,
    EmptyQueue,
    PersistQueue,
    PersistQueueDeleted,
    PutQueue,
    QueueDeclared,
    RemoveRoute,
)
from penstock.model.arguments import Value
from penstock.model.errors import (
    AccessRefusedError,
    InvalidArgumentError,
    LimitReachedError,
    LockedError,
    NotFoundError,
    PreconditionFailedError,
)
from penstock.model.names import QUEUE_ID_MAX, ConnectionId, ExchangeName, QueueId, QueueName
from penstock.model.records import Durability, Exchange, ExchangeKind, Queue, Retries, RetryType
from support.machine import RANDOM, Machine


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_a_durable_queue_is_written_before_the_engine_gets_it(machine: Machine) -> None:
    decision = machine.queue("a")

    queue = machine.queue_named("a")
    assert decision.answer == QueueDeclared(queue, is_new=True)
    assert decision.entries == [PersistQueue(queue)]
    assert decision.changes == [PutQueue(queue)]


def test_a_transient_queue_is_not_written(machine: Machine) -> None:
    decision = machine.queue("a", durable=False)

    assert decision.entries == []
    assert len(decision.changes) == 1


def test_declaring_the_same_again_changes_nothing(machine: Machine) -> None:
    machine.queue("a", arguments={"x-durability": "disk", "note": 1})

    decision = machine.queue("a", arguments={"note": 1, "x-durability": "disk"})

    assert decision.answer == QueueDeclared(machine.queue_named("a"), is_new=False)
    assert (decision.entries, decision.changes) == ([], [])


@pytest.mark.parametrize("field", ["durable", "auto_delete"])
def test_a_mismatch_is_refused_by_the_name_of_the_field(machine: Machine, field: str) -> None:
    machine.queue("a", durable=True, auto_delete=False)

    with pytest.raises(PreconditionFailedError, match=f"already exists with {field}") as refused:
        machine.queue("a", **{"durable": True, "auto_delete": False, field: field == "auto_delete"})  # type: ignore[arg-type]
    assert refused.value.field == field
    assert {refused.value.wanted, refused.value.found} == {"true", "false"}


def test_a_differing_argument_is_named_with_both_values(machine: Machine) -> None:
    machine.queue("a", arguments={"x-durability": "os"})

    with pytest.raises(PreconditionFailedError) as refused:
        machine.queue("a", arguments={"x-durability": "disk"})
    assert (refused.value.field, refused.value.wanted, refused.value.found) == (
        "arguments.x-durability",
        "'disk'",
        "'os'",
    )


def test_an_integer_is_not_the_float_of_its_value(machine: Machine) -> None:
    machine.queue("a", arguments={"note": 1})

    with pytest.raises(PreconditionFailedError, match=r"with note 1, and you asked for it with note 1\.0"):
        machine.queue("a", arguments={"note": 1.0})


def test_naming_the_only_queue_type_or_not_is_the_same(machine: Machine) -> None:
    machine.queue("a")

    assert machine.queue("a", arguments={"x-queue-type": "classic"}).changes == []
    assert machine.queue_named("a").arguments == {}


def test_the_level_is_understood_and_echoed(machine: Machine) -> None:
    machine.queue("a", arguments={"x-durability": "disk"})
    machine.queue("b")

    assert machine.queue_named("a").durability is Durability.DISK
    assert machine.queue_named("b").durability is None


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"x-delivery-limit": -2}, "'x-delivery-limit' whose value -2 is not valid"),
        ({"x-delayed-retry-type": "some"}, "use disabled or all or failed or returned"),
        ({"x-delayed-retry-min": -1}, "'x-delayed-retry-min' whose value -1 is not valid"),
        ({"x-retry-backoff": []}, "send a list of 1 to 100 numbers of milliseconds"),
        ({"x-retry-backoff": [1, "2"]}, "'x-retry-backoff' whose value"),
        ({"x-retry-backoff": [1] * 101}, "'x-retry-backoff' whose value"),
        ({"x-max-length": -1}, "'x-max-length' whose value -1 is not valid; write a number of messages, at least 0"),
        ({"x-max-length": True}, "'x-max-length' whose value true is not valid"),
        (
            {"x-max-length-bytes": 0},
            "'x-max-length-bytes' whose value 0 is not valid; write a number of bytes",
        ),
        (
            {"x-overflow": "drop-tail"},
            "'x-overflow' whose value 'drop-tail' is not valid; use drop-head or",
        ),
        ({"x-expires": 0}, "'x-expires' whose value 0 is not valid; write a number of milliseconds, at least 1"),
        ({"x-queue-type": "stream", "x-max-length": 1}, "'x-max-length' that streams do not support"),
        ({"x-queue-type": "stream", "x-expires": 1}, "'x-expires' that streams do not support"),
        ({"x-dead-letter-routing-key": "k"}, "'x-dead-letter-routing-key' and no dead-letter exchange"),
        ({"x-penstock-id": 1}, "'x-penstock-id' that only the broker sets"),
        ({"x-queue-mode": ["lazy"]}, r"'x-queue-mode' whose value .* is not valid"),
        ({"x-queue-type": "mqtt"}, "'x-queue-type' whose value 'mqtt' is not supported yet"),
        ({"x-queue-type": "spam"}, "'x-queue-type' whose value 'spam' is not valid"),
        ({"x-durability": "replicated"}, "'x-durability' whose value 'replicated' is not supported yet"),
        ({"x-durability": 1}, "'x-durability' whose value 1 is not valid"),
    ],
)
def test_an_argument_that_is_not_acted_upon_is_refused(
    machine: Machine, arguments: dict[str, Value], rule: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=rule) as refused:
        machine.queue("a", arguments=arguments)
    assert refused.value.field in arguments
    assert not machine.has_queue("a")


@pytest.mark.parametrize("kind", ["classic", "quorum", "stream"])
def test_an_argument_that_no_broker_or_only_another_ones_storage_uses_is_kept_as_it_is(
    machine: Machine, kind: str
) -> None:
    arguments: dict[str, Value] = {
        "x-queue-type": kind,
        "x-queue-mode": "lazy",
        "x-queue-version": 2,
        "x-queue-leader-locator": "balanced",
        "x-quorum-initial-group-size": 3,
        "x-spam": {"any": [1, None]},
        "x-hash-on": "of exchanges",
    }
    machine.queue("a", arguments=arguments)

    assert machine.queue_named("a").arguments == arguments
    with pytest.raises(PreconditionFailedError, match="x-spam"):
        machine.queue("a", arguments={**arguments, "x-spam": 2})


def test_a_quorum_queue_is_one_to_consume_and_is_durable(machine: Machine) -> None:
    machine.queue("a", arguments={"x-queue-type": "quorum", "x-message-ttl": 5})

    assert not machine.queue_named("a").is_stream
    assert machine.queue_named("a").message_ttl_ms == 5
    for flags in ({"durable": False}, {"exclusive": True}, {"auto_delete": True}):
        with pytest.raises(InvalidArgumentError, match="is a quorum queue and is declared with"):
            machine.queue("b", arguments={"x-queue-type": "quorum"}, **flags)
    with pytest.raises(PreconditionFailedError) as refused:
        machine.queue("a")
    assert (refused.value.wanted, refused.value.found) == ("classic", "quorum")


def test_names_with_the_reserved_prefix_are_refused(machine: Machine) -> None:
    with pytest.raises(AccessRefusedError, match="reserved"):
        machine.queue("amq.mine")


def test_an_import_may_keep_a_name_that_a_broker_gave(machine: Machine) -> None:
    machine.decide(DeclareQueue(QueueName("amq.gen-1"), ConnectionId(0), may_be_reserved=True))

    assert machine.has_queue("amq.gen-1")


def test_a_queue_without_a_name_gets_one(machine: Machine) -> None:
    decision = machine.queue("", exclusive=True)

    assert isinstance(decision.answer, QueueDeclared)
    assert decision.answer.queue.name == f"amq.gen-{RANDOM}"


def test_a_server_named_queue_can_be_declared_again_by_its_name(machine: Machine) -> None:
    machine.queue("")

    assert machine.queue(f"amq.gen-{RANDOM}").changes == []


def test_numbers_are_never_used_again(machine: Machine) -> None:
    machine.queue("a")
    machine.delete_queue("a")
    machine.queue("a")

    assert machine.queue_named("a").id == 2


def test_a_vhost_out_of_numbers_refuses(machine: Machine) -> None:
    machine.state.next_queue_id = QueueId(QUEUE_ID_MAX)
    machine.queue("last")

    with pytest.raises(LimitReachedError, match="never used again, so declare it in a new vhost"):
        machine.queue("one-more")
    machine.delete_queue("last")
    with pytest.raises(LimitReachedError, match="all queue numbers"):
        machine.queue("last")


def test_a_passive_declare_only_looks(machine: Machine) -> None:
    with pytest.raises(NotFoundError, match="queue 'a' in vhost '/' not found"):
        machine.queue("a", passive=True)
    machine.queue("a", auto_delete=True)

    decision = machine.queue("a", passive=True, arguments={"x-spam": 1})

    assert decision.answer == QueueDeclared(machine.queue_named("a"), is_new=False)


def test_an_exclusive_queue_is_locked_to_its_connection(machine: Machine) -> None:
    machine.queue("a", connection=1, exclusive=True)

    for use in (
        lambda: machine.queue("a", connection=2, exclusive=True),
        lambda: machine.queue("a", connection=2, passive=True),
        lambda: machine.delete_queue("a", connection=2),
        lambda: machine.bind("amq.direct", "a", connection=2),
        lambda: machine.unbind("amq.direct", "a", connection=2),
        lambda: machine.decide(PurgeQueue(QueueName("a"), ConnectionId(2))),
    ):
        with pytest.raises(LockedError, match="exclusive to another connection"):
            use()
    assert machine.queue("a", connection=1, exclusive=True).changes == []


def test_its_owner_cannot_declare_an_exclusive_queue_as_shared(machine: Machine) -> None:
    machine.queue("a", exclusive=True)

    with pytest.raises(PreconditionFailedError, match="exclusive"):
        machine.queue("a", exclusive=False)


def test_an_exclusive_queue_is_never_written_even_if_durable(machine: Machine) -> None:
    machine.queue("a", exclusive=True, durable=True)
    machine.bind("amq.direct", "a")
    machine.closed(1)

    assert machine.entries == []


def test_a_closed_connection_takes_its_exclusive_queues_along(machine: Machine) -> None:
    machine.queue("mine", connection=1, exclusive=True)
    machine.queue("mine-too", connection=1, exclusive=True)
    machine.queue("yours", connection=2, exclusive=True)
    machine.queue("shared", connection=1)

    decision = machine.closed(1)

    assert [type(change) for change in decision.changes] == [DropQueue, DropQueue]
    assert list(machine.state.queues) == ["yours", "shared"]


def test_a_conditional_delete_minds_consumers_and_messages(machine: Machine) -> None:
    machine.queue("a")

    with pytest.raises(PreconditionFailedError, match="has 2 consumers") as refused:
        machine.delete_queue("a", if_unused=True, consumer_count=2)
    assert refused.value.field == "if_unused"
    with pytest.raises(
        PreconditionFailedError, match="holds 12 ready messages; delete with if_empty=false to drop them"
    ):
        machine.delete_queue("a", if_empty=True, ready_count=12)
    machine.delete_queue("a", if_empty=True, if_unused=True)

    assert not machine.has_queue("a")


def test_a_deleted_queue_loses_its_routes_first(machine: Machine) -> None:
    machine.queue("a")
    machine.bind("amq.direct", "a", "one")
    machine.bind("amq.topic", "a", "two")

    decision = machine.delete_queue("a")

    assert decision.entries == [PersistQueueDeleted(QueueName("a"))]
    assert [type(change) for change in decision.changes] == [RemoveRoute, RemoveRoute, DropQueue]
    assert machine.state.binding_count == 0


def test_deleting_what_is_not_there_is_refused(machine: Machine) -> None:
    with pytest.raises(NotFoundError):
        machine.delete_queue("a")


def test_an_auto_delete_queue_goes_when_unused_and_others_stay(machine: Machine) -> None:
    machine.queue("going", auto_delete=True)
    machine.queue("staying")

    machine.unused("staying")
    machine.unused("going", consumer_count=1)
    assert machine.has_queue("going")
    machine.unused("going")
    machine.unused("going")

    assert list(machine.state.queues) == ["staying"]


def test_a_purge_tells_the_engine_only(machine: Machine) -> None:
    machine.queue("a")

    decision = machine.decide(PurgeQueue(QueueName("a"), ConnectionId(1)))

    assert (decision.entries, decision.changes) == ([], [EmptyQueue(QueueId(1))])


@pytest.mark.parametrize(
    ("first", "second", "rule"),
    [
        ("classic", "stream", "is a classic queue, not a stream"),
        ("stream", "classic", "is a stream, not a classic queue"),
    ],
)
def test_a_queue_is_not_declared_again_as_a_stream(machine: Machine, first: str, second: str, rule: str) -> None:
    machine.queue("orders", arguments={"x-queue-type": first})

    with pytest.raises(PreconditionFailedError, match=rule) as refused:
        machine.queue("orders", arguments={"x-queue-type": second, "x-durability": "disk"})

    assert refused.value.field == "arguments.x-queue-type"


@pytest.mark.parametrize(
    ("arguments", "limit"),
    [
        ({}, None),
        ({"x-queue-type": "quorum"}, 20),
        ({"x-queue-type": "quorum", "x-delivery-limit": 3}, 3),
        ({"x-queue-type": "quorum", "x-delivery-limit": -1}, None),
    ],
)
def test_a_quorum_queue_limits_deliveries_unless_it_says_otherwise(
    arguments: dict[str, Value], limit: int | None
) -> None:
    assert Queue(QueueId(1), QueueName("q"), arguments=arguments).delivery_limit == limit


@pytest.mark.parametrize(
    ("arguments", "retries"),
    [
        ({}, None),
        ({"x-delayed-retry-type": "all"}, None),
        ({"x-delayed-retry-min": 100}, None),
        ({"x-delayed-retry-type": "failed", "x-delayed-retry-min": 100}, Retries(RetryType.FAILED, 100)),
        (
            {"x-delayed-retry-type": "all", "x-delayed-retry-min": 100, "x-delayed-retry-max": 250},
            Retries(RetryType.ALL, 100, 250),
        ),
        ({"x-retry-backoff": [1, 50]}, Retries(RetryType.ALL, steps_ms=(1, 50))),
        (
            {"x-retry-backoff": [1], "x-delayed-retry-type": "returned", "x-delayed-retry-min": 100},
            Retries(RetryType.RETURNED, steps_ms=(1,)),
        ),
        ({"x-retry-backoff": [1], "x-delayed-retry-type": "disabled"}, None),
    ],
)
def test_a_list_of_delays_counts_before_the_linear_ones(arguments: dict[str, Value], retries: Retries | None) -> None:
    assert Queue(QueueId(1), QueueName("q"), arguments=arguments).retries == retries


@pytest.mark.parametrize(
    ("arguments", "deduplication"),
    [
        ({"x-cache-size": 3}, None),
        ({"x-message-deduplication": False}, None),
        ({"x-message-deduplication": True}, ("x-deduplication-header", 128, None)),
        (
            {"x-message-deduplication": True, "x-deduplication-header": "id", "x-cache-size": 3, "x-cache-ttl": 9},
            ("id", 3, 9),
        ),
        ({"x-queue-type": "stream", "x-message-deduplication": True}, ("x-deduplication-header", 128, None)),
    ],
)
def test_repetitions_are_recognized_where_the_arguments_say_so(
    arguments: dict[str, Value], deduplication: tuple[str, int, int | None] | None
) -> None:
    assert Queue(QueueId(1), QueueName("q"), arguments=arguments).deduplication == deduplication
    assert Exchange(ExchangeName("x"), ExchangeKind.TOPIC, arguments=arguments).deduplication == deduplication
