"""Streams: their arguments, and declaring and deleting them whole."""

import pytest

from penstock.metadata import restore
from penstock.metadata.commands import DeclareStream, DeleteStream
from penstock.metadata.effects import Decision, StreamDeclared
from penstock.metadata.exchanges import check_publish
from penstock.metadata.streams import partitions, stream_names
from penstock.model.arguments import Arguments, Value
from penstock.model.errors import InvalidArgumentError, NotFoundError, PreconditionFailedError, RefusedError
from penstock.model.names import QUEUE_ID_MAX, ExchangeName, QueueId, VhostName
from penstock.model.records import Retention
from support.machine import Machine

STREAM: Arguments = {"x-queue-type": "stream"}


@pytest.fixture
def machine() -> Machine:
    return Machine()


def declare(machine: Machine, name: str, partition_count: int = 1, arguments: Arguments | None = None) -> Decision:
    return machine.decide(DeclareStream(name, partition_count, arguments or {}))


def test_a_queue_of_type_stream_knows_what_it_keeps(machine: Machine) -> None:
    machine.queue("s", arguments={**STREAM, "x-max-age": "12h", "x-max-length-bytes": 5_000})
    machine.queue("all", arguments=STREAM)
    machine.queue("q")

    assert machine.queue_named("s").retention == Retention(12 * 3_600_000, 5_000)
    assert machine.queue_named("all").retention == Retention(0, 0)
    assert machine.queue_named("q").retention is None


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        ("x-max-age", "7 days", "'7D'"),
        ("x-max-age", "0s", "'7D'"),
        ("x-max-age", "9" * 400 + "D", "'7D'"),
        ("x-max-age", 7, "'7D'"),
        ("x-max-length-bytes", 0, "at least 1"),
        ("x-max-length-bytes", True, "at least 1"),
        ("x-max-length-bytes", "1GB", "at least 1"),
        ("x-message-ttl", 1, "'x-max-age' and 'x-max-length-bytes'"),
        ("x-max-priority", 1, "'x-max-age' and 'x-max-length-bytes'"),
        ("x-dead-letter-exchange", "dlx", "'x-max-age' and 'x-max-length-bytes'"),
        ("x-consumer-timeout", 1, "'x-max-age' and 'x-max-length-bytes'"),
    ],
)
def test_an_argument_that_a_stream_cannot_honour_is_refused_with_what_to_write(
    machine: Machine, key: str, value: Value, hint: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=hint) as refusal:
        machine.queue("s", arguments={**STREAM, key: value})

    assert refusal.value.field == key
    assert not machine.has_queue("s")


@pytest.mark.parametrize("flag", [{"durable": False}, {"exclusive": True}, {"auto_delete": True}])
def test_a_stream_stays_whatever_becomes_of_connections(machine: Machine, flag: dict[str, bool]) -> None:
    with pytest.raises(InvalidArgumentError, match=next(iter(flag))):
        machine.queue("s", arguments=STREAM, **flag)


def test_an_age_belongs_to_streams(machine: Machine) -> None:
    with pytest.raises(InvalidArgumentError, match="'stream'"):
        machine.queue("q", arguments={"x-max-age": "1h"})


def test_the_type_is_part_of_what_must_be_the_same(machine: Machine) -> None:
    machine.queue("q")
    machine.queue("s", arguments=STREAM)

    assert not machine.queue("q", arguments={"x-queue-type": "classic"}).changes
    with pytest.raises(PreconditionFailedError, match=r"is a (classic queue|stream), not a"):
        machine.queue("q", arguments=STREAM)
    with pytest.raises(PreconditionFailedError, match=r"is a (classic queue|stream), not a"):
        machine.queue("s")


def test_a_stream_of_one_partition_is_a_queue_of_its_name(machine: Machine) -> None:
    decision = declare(machine, "orders", arguments={"x-max-age": "7D"})

    assert decision.answer == StreamDeclared(("orders",), is_new=True)  # type: ignore[arg-type]
    assert machine.queue_named("orders").is_stream
    assert len(decision.entries) == len(decision.changes) == 1
    assert declare(machine, "orders", arguments={"x-max-age": "7D"}).changes == []


def test_a_partitioned_stream_is_one_decision(machine: Machine) -> None:
    decision = declare(machine, "clicks", 12)

    names = [f"clicks-{number}" for number in range(12)]
    assert decision.answer == StreamDeclared(tuple(names), is_new=True)  # type: ignore[arg-type]
    assert partitions(machine.state, "clicks") == names
    assert partitions(machine.state, "clicks-7") == ["clicks-7"]
    assert stream_names(machine.state) == ["clicks"]
    assert len(decision.entries) == 12 + 1 + 12
    assert declare(machine, "clicks", 12).changes == []


@pytest.mark.parametrize("count", [0, 1_001, 2**31])
def test_a_number_of_partitions_that_cannot_be_is_refused(machine: Machine, count: int) -> None:
    with pytest.raises(InvalidArgumentError, match="from 1 to 1,000"):
        declare(machine, "clicks", count)


def test_the_number_of_partitions_never_changes(machine: Machine) -> None:
    declare(machine, "clicks", 3)
    declare(machine, "orders")

    for name, count in (("clicks", 4), ("clicks", 1), ("orders", 2)):
        with pytest.raises(PreconditionFailedError, match="partitions"):
            declare(machine, name, count)


def test_a_part_that_stands_against_it_refuses_the_whole(machine: Machine) -> None:
    machine.queue("clicks-2")
    before = len(machine.entries)

    with pytest.raises(PreconditionFailedError, match="is a classic queue, not a stream"):
        declare(machine, "clicks", 4)

    assert len(machine.entries) == before
    assert not machine.has_exchange("clicks")
    assert not machine.has_queue("clicks-0")


def test_a_partition_and_a_stream_never_have_one_name(machine: Machine) -> None:
    """A name was that of two streams, or a stream became a partition of another one, with its messages."""
    declare(machine, "clicks", 2)
    for count in (1, 2):
        with pytest.raises(PreconditionFailedError, match="is a partition of stream 'clicks'"):
            declare(machine, "clicks-0", count)

    declare(machine, "orders-1")
    declare(machine, "visits-1", 2)
    machine.queue("logs-1", arguments=STREAM)
    before = len(machine.entries)
    for name in ("orders", "visits", "logs"):
        with pytest.raises(PreconditionFailedError, match=f"needs the name '{name}-1' for a partition"):
            declare(machine, name, 3)

    assert len(machine.entries) == before
    declare(machine, "orders", 1)
    assert not declare(machine, "clicks", 2).changes
    assert not declare(machine, "orders-1").changes


def test_a_stream_that_was_assembled_by_hand_keeps_its_parts(machine: Machine) -> None:
    machine.exchange("hand", "x-super-stream")
    declare(machine, "a")
    machine.bind("hand", "a", "0")

    assert not declare(machine, "a").changes


def test_what_no_queue_may_be_called_no_stream_is(machine: Machine) -> None:
    for name in ("", "amq.stream"):
        with pytest.raises(RefusedError):
            declare(machine, name)
    with pytest.raises(RefusedError, match="257 bytes"):
        declare(machine, "n" * 255, 2)
    with pytest.raises(InvalidArgumentError, match="than 'stream'"):
        declare(machine, "s", arguments={"x-queue-type": "classic"})


def test_the_numbers_of_queues_suffice_for_all_partitions_or_none_is_made(machine: Machine) -> None:
    machine.state.next_queue_id = QueueId(QUEUE_ID_MAX - 1)

    with pytest.raises(RefusedError, match="queue numbers"):
        declare(machine, "clicks", 3)

    assert not machine.has_queue("clicks-0")
    declare(machine, "clicks", 2)


def test_a_deleted_stream_leaves_nothing(machine: Machine) -> None:
    declare(machine, "clicks", 3)
    declare(machine, "orders")
    machine.bind("amq.topic", "clicks-1", "#")

    machine.decide(DeleteStream("clicks"))
    machine.decide(DeleteStream("orders"))

    assert stream_names(machine.state) == []
    assert machine.state.binding_count == 0
    assert not machine.has_exchange("clicks")
    assert restore(VhostName("/"), machine.entries, 0).queues == {}


def test_a_partition_goes_with_its_stream_only(machine: Machine) -> None:
    declare(machine, "clicks", 2)

    for attempt in (
        lambda: machine.delete_queue("clicks-1"),
        lambda: machine.decide(DeleteStream("clicks-1")),
        lambda: machine.delete_exchange("clicks"),
        lambda: machine.unbind("clicks", "clicks-1", "1"),
    ):
        with pytest.raises(PreconditionFailedError, match="delete the stream"):
            attempt()


def test_only_what_is_there_and_a_stream_can_be_deleted_as_one(machine: Machine) -> None:
    machine.queue("q")

    with pytest.raises(NotFoundError):
        machine.decide(DeleteStream("nothing"))
    with pytest.raises(InvalidArgumentError, match="classic"):
        machine.decide(DeleteStream("q"))


def test_an_exchange_of_a_stream_is_bound_by_numbers_to_streams(machine: Machine) -> None:
    machine.exchange("hand", "x-super-stream")
    machine.queue("q")
    machine.queue("a", arguments=STREAM)
    machine.queue("b", arguments=STREAM)
    machine.bind("hand", "a", "0")

    for key in ("", "one", "01", "-1", "1000", "٣"):
        with pytest.raises(InvalidArgumentError, match="from '0' to"):
            machine.bind("hand", "b", key)
    with pytest.raises(InvalidArgumentError):
        machine.bind("hand", "exchange:amq.topic", "1")
    with pytest.raises(PreconditionFailedError, match="not a stream"):
        machine.bind("hand", "q", "1")
    with pytest.raises(PreconditionFailedError, match="partition 0"):
        machine.bind("hand", "b", "0")
    with pytest.raises(PreconditionFailedError, match="place"):
        machine.bind("hand", "a", "1")
    machine.bind("hand", "b", "1")
    machine.delete_queue("b")
    machine.delete_exchange("hand")


@pytest.mark.parametrize("deletes", [False, True], ids=["declare", "delete"])
def test_a_write_that_was_cut_anywhere_leaves_a_stream_that_can_be_completed_and_deleted(deletes: bool) -> None:
    """A power failure may leave any prefix of the entries, none of which was answered."""
    whole = Machine()
    declare(whole, "clicks", 3)
    first = 0
    if deletes:
        first = len(whole.entries)
        whole.decide(DeleteStream("clicks"))

    for kept in range(first, len(whole.entries) + 1):
        machine = Machine()
        machine.state = restore(VhostName("/"), whole.entries[:kept], 0)
        is_whole = len(partitions(machine.state, "clicks")) == 3 if machine.has_exchange("clicks") else False
        if machine.has_exchange("clicks") and not is_whole:
            with pytest.raises(PreconditionFailedError, match="declare it again"):
                check_publish(machine.state, ExchangeName("clicks"))

        declare(machine, "clicks", 3)

        check_publish(machine.state, ExchangeName("clicks"))
        assert partitions(machine.state, "clicks") == ["clicks-0", "clicks-1", "clicks-2"]
        machine.decide(DeleteStream("clicks"))
        assert machine.state.queues == {}


def test_a_stream_whose_deletion_was_cut_can_be_deleted_again() -> None:
    whole = Machine()
    declare(whole, "clicks", 3)
    first = len(whole.entries)
    whole.decide(DeleteStream("clicks"))

    for kept in range(first, len(whole.entries)):
        machine = Machine()
        machine.state = restore(VhostName("/"), whole.entries[:kept], 0)
        machine.decide(DeleteStream("clicks"))
        assert (machine.state.queues, machine.has_exchange("clicks")) == ({}, False)
