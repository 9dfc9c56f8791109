"""Streams over the transport port: addresses, readers of several partitions, named publishers."""

import asyncio
from collections.abc import Callable

import pytest

import penstock
from penstock.client.aio import Connection as AioConnection
from penstock.client.opening import Options
from penstock.client.transport import StatusError
from penstock.client.uri import Address
from penstock.v1 import streams_pb2 as wire
from support.fake_reader import FakeReader
from support.fake_transport import FakeBroker, FakeTransport, connect_to


@pytest.fixture
def broker() -> FakeBroker:
    """Return a broker with two streams: `orders` of one partition, `clicks` of two."""
    broker = FakeBroker()
    partitions = {"orders": ["orders"], "clicks": ["clicks-0", "clicks-1"], "clicks-1": ["clicks-1"]}

    def list_streams(payload: bytes) -> bytes:
        name = wire.ListStreamsRequest.FromString(payload).name
        return wire.ListStreamsResponse(
            streams=[wire.Stream(name=name, partitions=partitions[name])]
        ).SerializeToString()

    def get_offsets(payload: bytes) -> bytes:
        request = wire.GetOffsetsRequest.FromString(payload)
        found = [
            wire.PartitionOffsets(partition=name, first=1, next=10 + place, at_timestamp=5)
            for place, name in enumerate(partitions[request.stream])
        ]
        return wire.GetOffsetsResponse(partitions=found).SerializeToString()

    broker.answers |= {
        "ListStreams": list_streams,
        "GetOffsets": get_offsets,
        "GetProducer": lambda _: wire.GetProducerResponse(sequence=41).SerializeToString(),
    }
    return broker


@pytest.fixture
def transport(broker: FakeBroker) -> FakeTransport:
    return FakeTransport(broker)


def stored(broker: FakeBroker) -> list[tuple[str, str, int]]:
    requests = [wire.StoreOffsetRequest.FromString(payload) for name, payload in broker.calls if name == "StoreOffset"]
    return [(request.partition, request.group, request.offset) for request in requests]


def published(transport: FakeTransport) -> list[tuple[bytes, str, str, bytes | None, int]]:
    return [message for publisher in transport.publishers for message in publisher.keyed]


def test_a_message_goes_to_the_stream_s_exchange_or_to_its_queue(broker: FakeBroker, transport: FakeTransport) -> None:
    broker.publish = lambda *_: (0, "")  # type: ignore[method-assign]
    with connect_to(transport) as connection:
        connection.stream("orders").publish(b"1")
        connection.stream("clicks").publish(b"2", key="anna")
        connection.stream("clicks-1").publish_many([b"3", b"4"], key=b"\xff")

    assert sorted(published(transport)) == [
        (b"1", "", "orders", None, 0),
        (b"2", "clicks", "", b"anna", 0),
        (b"3", "", "clicks-1", b"\xff", 0),
        (b"4", "", "clicks-1", b"\xff", 0),
    ]


def test_a_message_for_a_stream_that_is_gone_does_not_pass_for_stored(transport: FakeTransport) -> None:
    with connect_to(transport) as connection, pytest.raises(penstock.ReturnedError):
        connection.stream("orders").publish(b"1")


def test_a_named_publisher_counts_on_from_what_is_stored(broker: FakeBroker, transport: FakeTransport) -> None:
    broker.publish = lambda *_: (0, "")  # type: ignore[method-assign]
    with connect_to(transport) as connection, connection.stream("orders").publisher("import") as publisher:
        assert publisher.last_sequence == 41
        assert publisher.publish(b"a") == 42
        assert publisher.publish_many([b"b", b"c"]) == 2
        assert publisher.publish(b"d", sequence=100) == 100
        assert publisher.last_sequence == 100
        with pytest.raises(ValueError, match="at least 1"):
            publisher.publish(b"e", sequence=0)

    assert [message[4] for message in published(transport)] == [42, 43, 44, 100]
    assert [one.options.producer for one in transport.publishers] == ["import"]
    assert transport.publishers[0].is_closed


def test_a_named_publisher_numbers_nothing_while_its_logs_differ(broker: FakeBroker, transport: FakeTransport) -> None:
    broker.publish = lambda *_: (0, "")  # type: ignore[method-assign]
    answer = wire.GetProducerResponse(sequence=41, highest=44)
    broker.answers["GetProducer"] = lambda _: answer.SerializeToString()
    with connect_to(transport) as connection:
        with connection.stream("orders").publisher("import") as publisher:
            assert (publisher.last_sequence, publisher.highest_sequence) == (41, 44)
            with pytest.raises(penstock.PreconditionFailedError, match=r"42 to 44 .*sequence=42.*sequence=45"):
                publisher.publish(b"new")
            publisher.publish_many([b"a", b"b"], sequence=42)
            with pytest.raises(penstock.PreconditionFailedError, match=r"44 to 44"):
                publisher.publish(b"new")
            publisher.publish(b"c", sequence=44)
            assert publisher.publish(b"new") == 45

        with connection.stream("orders").publisher("import") as publisher:
            assert publisher.publish(b"newer", sequence=45) == 45
            assert publisher.publish(b"newest") == 46


def test_a_reading_ends_where_it_was_told_for_each_partition(transport: FakeTransport) -> None:
    with connect_to(transport) as connection:
        connection.stream("clicks").read(from_="first", until="next", group="g", single_active=True).close()

    assert [(one.partition, one.options.end) for one in transport.readers] == [("clicks-0", 10), ("clicks-1", 11)]
    assert {(one.options.group, one.options.single_active) for one in transport.readers} == {("g", True)}
    assert all(one.is_closed for one in transport.readers)


def test_a_reading_asks_for_replicas_unless_it_has_a_group(transport: FakeTransport) -> None:
    with connect_to(transport) as connection:
        for options in ({}, {"from_replica": True}, {"from_replica": True, "group": "g"}):
            connection.stream("clicks").read(**options).close()

    assert [one.options.from_replica for one in transport.readers] == [False] * 2 + [True] * 2 + [False] * 2


def test_partitions_are_read_together_each_in_its_order_until_all_are_finished(transport: FakeTransport) -> None:
    with connect_to(transport) as connection:
        reader = connection.stream("clicks").read(until="next")
        one, other = transport.readers
        one.put(1, 2, 3)
        other.put(1, 2)
        one.finish()
        other.finish()

        found = [(message.partition, message.offset) for message in reader]

    assert [offset for partition, offset in found if partition == "clicks-0"] == [1, 2, 3]
    assert [offset for partition, offset in found if partition == "clicks-1"] == [1, 2]
    assert one.is_closed


def test_a_count_or_silence_ends_a_reading(transport: FakeTransport) -> None:
    with connect_to(transport) as connection:
        transport_reader = lambda: transport.readers[-1]  # noqa: E731
        counted = connection.stream("orders").read(count=2)
        transport_reader().put(1, 2, 3)
        assert [message.offset for message in counted] == [1, 2]

        quiet = connection.stream("orders").read(idle_timeout=0.01)
        transport_reader().put(1)
        assert [message.offset for message in quiet] == [1]


def test_what_the_broker_says_ends_a_reading_with_an_error(transport: FakeTransport) -> None:
    with connect_to(transport) as connection:
        reader = connection.stream("orders").read()
        transport.readers[0].put(1)
        transport.readers[0].end(1, "the stream was deleted")
        messages = iter(reader)

        assert next(messages).offset == 1
        with pytest.raises(penstock.CancelledError, match="deleted"):
            next(messages)


def test_auto_store_tells_what_was_followed_by_a_wish_for_more(transport: FakeTransport) -> None:
    with connect_to(transport) as connection:
        reader = connection.stream("orders").read(group="g", auto_store=True)
        transport.readers[0].put(1, 2, 3)
        for message in reader:
            if message.offset == 3:
                break

    assert transport.readers[0].stored == [2]
    assert stored(transport.broker) == [("orders", "g", 2)]


def test_a_connection_that_closes_stores_how_far_a_group_came(broker: FakeBroker, transport: FakeTransport) -> None:
    """The connection refused the call as it was closed already: the group continued from an earlier offset."""
    connection = connect_to(transport)
    stream = connection.stream("orders")
    reader = stream.read(group="g")
    transport.readers[0].put(1, 2)
    messages = iter(reader)
    reader.store(next(messages))

    connection.close()

    assert stored(broker) == [("orders", "g", 1)]
    with pytest.raises(penstock.ClosedError):
        stream.info()


def test_what_cannot_be_stored_when_a_reading_ends_is_a_warning(
    transport: FakeTransport, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: bytes) -> bytes:
        raise StatusError(5, "no such stream", b"")

    transport.broker.answers["StoreOffset"] = refuse
    with connect_to(transport) as connection:
        reader = connection.stream("orders").read(group="g", auto_store=True, count=1)
        transport.readers[0].put(1)
        assert len(list(reader)) == 1

    assert "no such stream" in caplog.text
    assert transport.readers[0].is_closed


def test_a_message_knows_when_and_where_it_was_stored(transport: FakeTransport) -> None:
    with connect_to(transport) as connection:
        reader = connection.stream("orders").read(count=1)
        transport.readers[0].put(7)
        (message,) = reader

    assert (message.body, message.key, message.stored_at_ms, message.partition) == (b"7", None, 1_500, "orders")
    assert message.stored_at.isoformat() == "1970-01-01T00:00:01.500000+00:00"


def on_loop(transport: FakeTransport, scenario: Callable[[AioConnection], object]) -> None:
    async def run() -> None:
        async with AioConnection(transport, Options(Address(), None, None, 5.0)) as connection:
            await scenario(connection)  # type: ignore[misc]

    asyncio.run(run())


def test_a_loop_reads_and_publishes_like_a_thread(broker: FakeBroker, transport: FakeTransport) -> None:
    broker.publish = lambda *_: (0, "")  # type: ignore[method-assign]

    def fill(readers: list[FakeReader]) -> None:
        for reader in readers:
            reader.put(1, 2)
            reader.finish()

    async def scenario(connection: AioConnection) -> None:
        stream = connection.stream("clicks")
        await stream.publish(b"a", key="anna")
        assert await stream.publish_many([b"b", b"c"]) == 2
        async with await stream.publisher("import") as publisher:
            await asyncio.gather(publisher.publish(b"d"), publisher.publish(b"e"))
        async with stream.read(from_="first", until="next", group="g", auto_store=True) as reader:
            asyncio.get_running_loop().call_soon(fill, transport.readers)
            found = sorted([(message.partition, message.offset) async for message in reader])
        assert found == [("clicks-0", 1), ("clicks-0", 2), ("clicks-1", 1), ("clicks-1", 2)]

    on_loop(transport, scenario)

    assert {(message[0], message[3], message[4]) for message in published(transport)} == {
        (b"a", b"anna", 0),
        (b"b", None, 0),
        (b"c", None, 0),
        (b"d", None, 42),
        (b"e", None, 43),
    }
    assert [reader.stored for reader in transport.readers] == [[2], [2]]
    assert sorted(stored(broker)) == [("clicks-0", "g", 2), ("clicks-1", "g", 2)]
    assert all(reader.is_closed for reader in transport.readers)


def test_a_loop_s_reading_ends_after_silence(transport: FakeTransport) -> None:
    async def scenario(connection: AioConnection) -> None:
        async for _ in connection.stream("orders").read(idle_timeout=0.01):
            raise AssertionError("nothing was there")

    on_loop(transport, scenario)
    assert transport.readers[0].is_closed


def test_a_loop_s_connection_that_closes_stores_how_far_a_group_came(
    broker: FakeBroker, transport: FakeTransport
) -> None:
    async def scenario(connection: AioConnection) -> None:
        stream = connection.stream("orders")
        reader = stream.read(group="g")
        async with reader:
            transport.readers[0].put(1, 2)
            reader.store(await anext(aiter(reader)))

            await connection.close()

        assert stored(broker) == [("orders", "g", 1)]
        with pytest.raises(penstock.ClosedError):
            await stream.info()

    on_loop(transport, scenario)
