"""Named publishers after a failure.

No sequence that may be stored is assigned to another message, and nothing is sent past a failed one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

import penstock
from penstock.client.aio import Connection as AioConnection
from penstock.client.aio_publishing import AsyncPublishing
from penstock.client.closing import Grace
from penstock.client.opening import Options
from penstock.client.stream import StreamPublisher
from penstock.client.sync import Connection
from penstock.client.transport import PublisherOptions, StatusError
from penstock.client.uri import Address
from penstock.v1 import streams_pb2 as wire
from support.fake_transport import FakeBroker, FakePublisher, FakeQueue, FakeTransport, connect_to

STORED = 41


@pytest.fixture
def transport() -> FakeTransport:
    """Return a transport to a broker with a stream `orders`, which has STORED of the publisher."""
    broker = FakeBroker()
    stream = wire.Stream(name="orders", partitions=["orders"])
    broker.answers |= {
        "ListStreams": lambda _: wire.ListStreamsResponse(streams=[stream]).SerializeToString(),
        "GetProducer": lambda _: wire.GetProducerResponse(sequence=STORED).SerializeToString(),
    }
    broker.queues["orders"] = FakeQueue()
    return FakeTransport(broker)


def opened(transport: FakeTransport, timeout: float = 5.0) -> tuple[Connection, StreamPublisher]:
    connection = connect_to(transport, timeout)
    return connection, connection.stream("orders").publisher("importer")


def sequences(transport: FakeTransport) -> list[tuple[bytes, int]]:
    return [(body, sequence) for publisher in transport.publishers for body, _, _, _, sequence in publisher.keyed]


def refuse_from(transport: FakeTransport, refused: bytes) -> None:
    """Make the broker refuse this body and all later ones."""
    original, is_refusing = transport.broker.publish, [False]

    def publish(body: bytes, exchange: str, key: str, properties: bytes | None, mandatory: bool) -> tuple[int, str]:
        is_refusing[0] = is_refusing[0] or body == refused
        if is_refusing[0]:
            return 5, "no such stream"
        return original(body, exchange, key, properties, mandatory)

    transport.broker.publish = publish  # type: ignore[method-assign]


def test_what_was_stored_before_a_refusal_keeps_its_sequence(transport: FakeTransport) -> None:
    connection, publisher = opened(transport)
    original = transport.broker.publish
    refuse_from(transport, b"c")
    with pytest.raises(penstock.NotFoundError):
        publisher.publish_many([b"a", b"b", b"c", b"d"])
    assert publisher.last_sequence == STORED + 2

    transport.broker.publish = original  # type: ignore[method-assign]

    assert publisher.publish(b"instead of c") == STORED + 3
    connection.close()


def test_a_message_without_an_outcome_keeps_its_sequence_for_itself(transport: FakeTransport) -> None:
    connection, publisher = opened(transport, timeout=0.001)
    transport.publishers[0].hold()
    with pytest.raises(penstock.DeadlineError):
        publisher.publish(b"a")
    transport.publishers[0].is_holding = False
    transport.publishers[0].release()

    with pytest.raises(penstock.PreconditionFailedError, match="sequences 42 to 42 are stored is not known"):
        publisher.publish(b"b")
    assert (b"b", STORED + 1) not in sequences(transport)

    assert publisher.publish(b"a", sequence=STORED + 1) == STORED + 1
    assert publisher.publish(b"b") == STORED + 2
    connection.close()


def test_all_of_a_call_that_broke_off_are_sent_again_before_anything_else(transport: FakeTransport) -> None:
    connection, publisher = opened(transport)

    def broken() -> Iterator[bytes]:
        yield from [b"a"] * 1_000
        raise OSError("the disk with the bodies is gone")

    with pytest.raises(OSError, match="bodies"):
        publisher.publish_many(broken())
    publisher.publish(b"a", sequence=STORED + 1)

    with pytest.raises(penstock.PreconditionFailedError, match="43 to 1041"):
        publisher.publish(b"b")
    publisher.publish_many([b"a"] * 999, sequence=STORED + 2)
    assert publisher.publish(b"b") == STORED + 1_001
    connection.close()


def test_a_message_that_never_was_sent_leaves_its_sequence_to_the_next(transport: FakeTransport) -> None:
    connection, publisher = opened(transport)
    publisher.publish(b"a")
    with pytest.raises(penstock.InvalidArgumentError):
        publisher._publishing.publish_keyed([(None, b"x")], ("", "k" * 300, None, False), STORED + 2)

    assert publisher.publish(b"b") == STORED + 2
    connection.close()


def test_outcomes_of_a_publisher_that_ended_are_not_taken_for_the_broker_s(transport: FakeTransport) -> None:
    connection, publisher = opened(transport)
    port = transport.publishers[0]
    refuse_from(transport, b"a")
    port.on_held = lambda: setattr(port, "ended", StatusError(7, "no longer allowed", b""))
    with pytest.raises(penstock.NotFoundError):
        publisher.publish(b"a")
    port.ended = None

    with pytest.raises(penstock.PreconditionFailedError, match="not known"):
        publisher.publish(b"b")
    connection.close()


# ------------------------------------------------------------ asyncio


def published(
    transport: FakeTransport,
    in_flight_max: int,
    body: Callable[[AsyncPublishing], Awaitable[None]],
    timeout: float = 60.0,
) -> None:
    async def main() -> None:
        options = PublisherOptions("/", in_flight_max=in_flight_max, producer="importer")
        loop = asyncio.get_running_loop()
        publishing = AsyncPublishing(lambda: transport.publisher(options), StatusError, options, timeout, loop)
        await body(publishing)
        await publishing.close(Grace())

    asyncio.run(main())


def send(publishing: AsyncPublishing, sequence: int, key: str = "orders") -> "asyncio.Future[None]":
    return publishing.publish(str(sequence).encode(), "", key, None, False, None, sequence)


def sent(transport: FakeTransport) -> list[int]:
    return [sequence for _, sequence in sequences(transport)]


def test_a_message_refused_before_it_is_sent_fails_what_is_queued_behind_it(transport: FakeTransport) -> None:
    async def body(publishing: AsyncPublishing) -> None:
        futures = [send(publishing, 5, "k" * 300), send(publishing, 6), send(publishing, 7)]
        found = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(error) for error in found] == [
            penstock.InvalidArgumentError,
            penstock.PreconditionFailedError,
            penstock.PreconditionFailedError,
        ]
        assert "sequence 5 failed before it" in str(found[1])
        assert sent(transport) == [5]
        for sequence in (5, 6, 7):
            assert publishing.refused(sequence + 1) is not None
            assert publishing.refused(sequence) is None
            await send(publishing, sequence)
        assert publishing.refused(8) is None

    published(transport, 100, body)
    assert sent(transport) == [5, 5, 6, 7]


def test_a_message_that_the_broker_refused_fails_what_is_queued_behind_it(transport: FakeTransport) -> None:
    async def body(publishing: AsyncPublishing) -> None:
        await send(publishing, 4)
        transport.publishers[0].hold()
        refuse_from(transport, b"5")
        futures = [send(publishing, 5), send(publishing, 6)]
        await asyncio.sleep(0)
        transport.publishers[0].release()
        found = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(error) for error in found] == [penstock.NotFoundError, penstock.PreconditionFailedError]

    in_flight_max = 1
    transport = FakeTransport(transport.broker, in_flight_max)
    published(transport, in_flight_max, body)
    assert sent(transport) == [4, 5]


@pytest.mark.parametrize("is_ended", [True, False])
def test_a_publisher_that_is_given_up_does_not_jump_over_what_failed(transport: FakeTransport, is_ended: bool) -> None:
    async def body(publishing: AsyncPublishing) -> None:
        await send(publishing, 4)
        transport.publishers[0].hold()
        futures = [send(publishing, 5), send(publishing, 6)]
        await asyncio.sleep(0)
        if is_ended:
            transport.publishers[0].end(7, "no longer allowed")
        found = await asyncio.gather(*futures, return_exceptions=True)
        assert all(isinstance(error, penstock.PenstockError) for error in found)
        assert publishing.refused(7) is not None
        for sequence in (5, 6, 7):
            await send(publishing, sequence)

    in_flight_max = 1
    transport = FakeTransport(transport.broker, in_flight_max)
    published(transport, in_flight_max, body, timeout=60.0 if is_ended else 0.05)
    assert sent(transport) == [4, 5, 5, 6, 7]


def test_a_message_that_is_not_sent_takes_no_sequence(transport: FakeTransport) -> None:
    async def main() -> None:
        async with AioConnection(transport, Options(Address(), None, None, 5.0)) as connection:
            publisher = await connection.stream("orders").publisher("importer")
            await publisher.publish(b"a")
            port: FakePublisher = transport.publishers[-1]
            original = transport.broker.publish
            refuse_from(transport, b"b")
            with pytest.raises(penstock.NotFoundError):
                await publisher.publish(b"b")
            with pytest.raises(penstock.PreconditionFailedError, match="sequence=43"):
                await publisher.publish(b"c")
            transport.broker.publish = original  # type: ignore[method-assign]

            await publisher.publish(b"b", sequence=STORED + 2)
            await publisher.publish(b"c")
            assert [sequence for *_, sequence in port.keyed] == [42, 43, 43, 44]

    asyncio.run(main())
