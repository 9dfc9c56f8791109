"""The connection for asyncio, over a broker in memory."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import TypeVar

import pytest

import penstock
from penstock.client import aio
from penstock.client.aio import Connection
from penstock.client.aio_publishing import RUN_SENT, AsyncPublishing
from penstock.client.closing import Grace
from penstock.client.opening import Options
from penstock.client.transport import PublisherOptions, StatusError
from penstock.client.uri import Address
from support.fake_transport import FakeBroker, FakePublisher, FakeQueue, FakeTransport

T = TypeVar("T")


@pytest.fixture
def transport() -> FakeTransport:
    return FakeTransport(FakeBroker())


@asynccontextmanager
async def connected(transport: FakeTransport) -> AsyncIterator[Connection]:
    async with Connection(transport, Options(Address(), None, None, 5.0)) as connection:
        await connection.declare_queue("jobs")
        yield connection


def run(transport: FakeTransport, body: Callable[[Connection], Awaitable[T]]) -> T:
    async def main() -> T:
        async with connected(transport) as connection:
            return await body(connection)

    return asyncio.run(main())


def test_an_awaited_publish_is_confirmed(transport: FakeTransport) -> None:
    async def body(connection: Connection) -> None:
        await connection.publish(b"a", routing_key="jobs")

    run(transport, body)
    assert [stored.body for stored in transport.broker.queues["jobs"].ready] == [b"a"]


def test_a_refused_publish_raises_what_the_broker_said(transport: FakeTransport) -> None:
    async def body(connection: Connection) -> None:
        await connection.publish(b"a", exchange="missing")

    with pytest.raises(penstock.NotFoundError, match="missing"):
        run(transport, body)


def test_much_at_once_is_sent_before_the_turn_of_the_loop_ends(transport: FakeTransport) -> None:
    async def body(connection: Connection) -> tuple[int, int]:
        futures = [connection.publish(b"a", routing_key="jobs") for _ in range(RUN_SENT + 1)]
        sent_at_once = len(transport.broker.queues["jobs"].ready)
        await asyncio.gather(*futures)
        return sent_at_once, len(transport.broker.queues["jobs"].ready)

    assert run(transport, body) == (RUN_SENT, RUN_SENT + 1)


def test_outcomes_in_any_order_reach_their_own_messages(transport: FakeTransport) -> None:
    async def body(connection: Connection) -> list[bool]:
        await connection.publish(b"first", routing_key="jobs")
        publisher = transport.publishers[0]
        publisher.hold()
        futures = [connection.publish(str(number).encode(), routing_key="jobs") for number in range(5)]
        await asyncio.sleep(0)
        publisher.release(4, 2)
        await futures[2]
        await futures[0]
        found = [future.done() for future in futures]
        publisher.release()
        await asyncio.gather(*futures)
        return found

    assert run(transport, body) == [True, False, True, False, False]


def test_what_does_not_fit_waits_in_order(transport: FakeTransport) -> None:
    async def main() -> list[bool]:
        transport.broker.queues["jobs"] = FakeQueue()
        publisher = transport.publisher(PublisherOptions("/"))
        publisher.hold()
        publishing = AsyncPublishing(
            lambda: publisher, StatusError, PublisherOptions("/", in_flight_max=3), 5.0, asyncio.get_running_loop()
        )
        futures = [publishing.publish(str(number).encode(), "", "jobs", None, False) for number in range(5)]
        await asyncio.sleep(0)
        assert len(transport.broker.queues["jobs"].ready) == 3
        publisher.release(1)
        await futures[0]
        found = [future.done() for future in futures]
        publisher.is_holding = False
        publisher.release()
        await asyncio.gather(*futures)
        await publishing.close(Grace(5.0))
        return found

    assert asyncio.run(main()) == [True, False, False, False, False]
    bodies = [stored.body for stored in transport.broker.queues["jobs"].ready]
    assert bodies == [b"0", b"1", b"2", b"3", b"4"]


def test_messages_to_different_addresses_keep_their_order(transport: FakeTransport) -> None:
    async def body(connection: Connection) -> list[bool]:
        await connection.declare_queue("other")
        keys = ["jobs", "jobs", "other", "jobs"]
        futures = [connection.publish(str(n).encode(), "", key) for n, key in enumerate(keys)]
        refused = connection.publish(b"x", exchange="missing")
        last = connection.publish(b"4", routing_key="jobs")
        found = await asyncio.gather(*futures, refused, last, return_exceptions=True)
        return [error is None for error in found]

    assert run(transport, body) == [True, True, True, True, False, True]
    assert [stored.body for stored in transport.broker.queues["jobs"].ready] == [b"0", b"1", b"3", b"4"]
    assert [stored.body for stored in transport.broker.queues["other"].ready] == [b"2"]


def test_a_body_that_is_not_bytes_is_refused_before_it_is_queued(transport: FakeTransport) -> None:
    async def body(connection: Connection) -> None:
        with pytest.raises(TypeError, match="must be bytes, not str"):
            connection.publish("text", routing_key="jobs")  # type: ignore[arg-type]
        await connection.publish(b"a", routing_key="jobs")

    run(transport, body)


def test_closing_fails_what_has_no_outcome_in_time(transport: FakeTransport) -> None:
    async def main() -> BaseException | None:
        publisher = transport.publisher(PublisherOptions("/"))
        publisher.hold()
        publishing = AsyncPublishing(
            lambda: publisher, StatusError, PublisherOptions("/", in_flight_max=3), 5.0, asyncio.get_running_loop()
        )
        future = publishing.publish(b"a", "", "jobs", None, False)
        await publishing.close(Grace())
        assert publisher.is_closed
        return future.exception()

    assert isinstance(asyncio.run(main()), penstock.PenstockError)


def test_closing_without_a_broker_says_so_to_what_waits(
    transport: FakeTransport, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> BaseException | None:
        publisher = transport.publisher(PublisherOptions("/"))
        publisher.hold()
        publisher.lost = "Connection refused"
        options = PublisherOptions("/", in_flight_max=3)
        publishing = AsyncPublishing(lambda: publisher, StatusError, options, 600.0, asyncio.get_running_loop())
        future = publishing.publish(b"a", "", "jobs", None, False)
        seconds = count()
        await publishing.close(Grace(86_400.0, lambda: float(next(seconds))))
        assert next(seconds) < 10
        return future.exception()

    error = asyncio.run(main())

    assert isinstance(error, penstock.ConnectionLostError)
    assert "lost (Connection refused)" in str(error)
    assert "closed with unconfirmed messages: 1;" in caplog.text


@pytest.mark.parametrize(
    ("lost", "kind"), [("Connection refused", penstock.ConnectionLostError), (None, penstock.DeadlineError)]
)
def test_no_confirm_in_time_fails_what_waits_and_says_why(
    transport: FakeTransport, lost: str | None, kind: type[Exception]
) -> None:
    async def main() -> None:
        async with Connection(transport, Options(Address(), None, None, 0.01)) as connection:
            await connection.declare_queue("jobs")
            await connection.publish(b"warm", routing_key="jobs")
            transport.publishers[0].hold()
            transport.publishers[0].lost = lost
            futures = [connection.publish(b"a", routing_key="jobs") for _ in range(3)]
            found = await asyncio.gather(*futures, return_exceptions=True)
            assert [type(error) for error in found if error is not None] == [kind] * 3
            assert (lost or "no confirm within 0.01 s") in str(found[0])
            await connection.publish(b"b", routing_key="jobs")

    asyncio.run(main())
    assert len(transport.publishers) == 2
    assert transport.publishers[0].is_closed


def test_consumers_that_do_not_end_are_waited_for_together(
    transport: FakeTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(aio, "Grace", lambda timeout: Grace(timeout, lambda: now[0]))

    async def body(connection: Connection) -> None:
        kept = [connection.consume("jobs") for _ in range(50)]

        def end(timeout_ms: int) -> None:
            assert all(each.is_closing for each in transport.consumers)
            now[0] = max(now[0], 2.0)

        for consumer in transport.consumers:
            consumer.on_close = end
        await connection.close()
        assert len(kept) == 50

    run(transport, body)
    assert all(consumer.is_closed for consumer in transport.consumers)


def test_a_thousand_tasks_publish_at_once(transport: FakeTransport) -> None:
    async def body(connection: Connection) -> None:
        async def publish() -> None:
            for _ in range(5):
                await connection.publish(b"a", routing_key="jobs")

        await asyncio.gather(*(publish() for _ in range(1_000)))

    run(transport, body)
    assert len(transport.broker.queues["jobs"].ready) == 5_000


def test_a_cancelled_wait_leaves_the_others_alone(transport: FakeTransport) -> None:
    async def body(connection: Connection) -> None:
        await connection.publish(b"0", routing_key="jobs")
        transport.publishers[0].hold()
        futures = [connection.publish(b"a", routing_key="jobs") for _ in range(3)]
        await asyncio.sleep(0)
        futures[1].cancel()
        transport.publishers[0].release()
        await asyncio.gather(futures[0], futures[2])

    run(transport, body)


def test_a_publisher_that_ended_for_good_fails_all_that_wait_and_the_next_one_works(transport: FakeTransport) -> None:
    async def body(connection: Connection) -> None:
        await connection.publish(b"0", routing_key="jobs")
        transport.publishers[0].hold()
        futures = [connection.publish(b"a", routing_key="jobs") for _ in range(3)]
        await asyncio.sleep(0)
        transport.publishers[0].end(7, "no longer allowed")
        found = await asyncio.gather(*futures, return_exceptions=True)
        assert all(isinstance(error, penstock.AccessRefusedError) for error in found)
        await connection.publish(b"b", routing_key="jobs")

    run(transport, body)
    assert len(transport.publishers) == 2
    assert transport.publishers[0].is_closed


def test_a_publisher_that_ended_behind_some_confirms_is_replaced(transport: FakeTransport) -> None:
    async def body(connection: Connection) -> None:
        await connection.publish(b"0", routing_key="jobs")
        publisher = transport.publishers[0]
        publisher.hold()
        futures = [connection.publish(b"a", routing_key="jobs") for _ in range(3)]
        await asyncio.sleep(0)
        publisher.release(2)
        await futures[0]
        publisher.end(7, "no longer allowed")
        await asyncio.gather(*futures, return_exceptions=True)
        await asyncio.wait_for(connection.publish(b"b", routing_key="jobs"), 60)

    run(transport, body)
    assert len(transport.publishers) == 2


def test_what_did_not_fit_fails_too_and_the_next_message_is_sent(transport: FakeTransport) -> None:
    async def main() -> list[type[BaseException]]:
        ports: list[FakePublisher] = []

        def open_port() -> FakePublisher:
            ports.append(transport.publisher(PublisherOptions("/")))
            if len(ports) == 1:
                ports[0].hold()
            return ports[-1]

        options = PublisherOptions("/", in_flight_max=3)
        publishing = AsyncPublishing(open_port, StatusError, options, 0.01, asyncio.get_running_loop())
        futures = [publishing.publish(b"a", "", "jobs", None, False) for _ in range(5)]
        found = await asyncio.gather(*futures, return_exceptions=True)
        await asyncio.wait_for(publishing.publish(b"b", "", "jobs", None, False), 60)
        await publishing.close(Grace(60.0))
        return [type(error) for error in found if error is not None]

    assert asyncio.run(main()) == [penstock.DeadlineError] * 5


def test_a_message_the_publisher_refuses_leaves_the_others_alone(transport: FakeTransport) -> None:
    async def body(connection: Connection) -> None:
        await connection.publish(b"0", routing_key="jobs")
        transport.publishers[0].hold()
        waiting = connection.publish(b"a", routing_key="jobs")
        await asyncio.sleep(0)
        with pytest.raises(penstock.InvalidArgumentError, match="300 bytes"):
            await connection.publish(b"b", routing_key="k" * 300)
        transport.publishers[0].release()
        await waiting

    run(transport, body)
    assert len(transport.publishers) == 1


def test_a_publisher_that_ended_with_nothing_waiting_is_replaced_without_a_failure(transport: FakeTransport) -> None:
    async def body(connection: Connection) -> None:
        await connection.publish(b"0", routing_key="jobs")
        transport.publishers[0].end_quietly(7, "no longer allowed")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await connection.publish(b"1", routing_key="jobs")

    run(transport, body)
    assert len(transport.publishers) == 2


def test_publish_many_gives_the_number_confirmed(transport: FakeTransport) -> None:
    async def body(connection: Connection) -> int:
        return await connection.publish_many([b"a"] * 2_500, routing_key="jobs")

    assert run(transport, body) == 2_500


def test_messages_are_consumed_and_acked(transport: FakeTransport) -> None:
    async def body(connection: Connection) -> list[bytes]:
        await connection.publish_many([b"a", b"b", b"c"], routing_key="jobs")
        found = []
        async for message in connection.consume("jobs", idle_timeout=0.001):
            found.append(message.body)
            message.ack()
        return found

    assert run(transport, body) == [b"a", b"b", b"c"]
    assert not transport.broker.queues["jobs"].unsettled


def test_a_waiting_consumer_wakes_for_what_arrives(transport: FakeTransport) -> None:
    async def body(connection: Connection) -> bytes:
        async def first() -> bytes:
            async for message in connection.consume("jobs"):
                return message.body
            raise AssertionError("the consumer ended")

        waiting = asyncio.ensure_future(first())
        await asyncio.sleep(0)
        await connection.publish(b"late", routing_key="jobs")
        transport.consumers[0].arrive()
        return await waiting

    assert run(transport, body) == b"late"


def test_closing_the_connection_ends_a_loop_that_waits(transport: FakeTransport) -> None:
    async def body(connection: Connection) -> list[bytes]:
        async def consume() -> list[bytes]:
            return [message.body async for message in connection.consume("jobs")]

        waiting = asyncio.ensure_future(consume())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await connection.close()
        return await waiting

    assert run(transport, body) == []


def test_a_consumer_that_always_has_messages_lets_other_tasks_run(transport: FakeTransport) -> None:
    async def body(connection: Connection) -> int:
        await connection.publish_many([b"a"] * 5_000, routing_key="jobs")
        turns = count()

        async def other() -> None:
            while True:
                next(turns)
                await asyncio.sleep(0)

        task = asyncio.ensure_future(other())
        async for _ in connection.consume("jobs", auto_ack=True, idle_timeout=0):
            pass
        task.cancel()
        return next(turns)

    assert run(transport, body) >= 5


def test_a_message_from_get_is_settled_before_close_returns(transport: FakeTransport) -> None:
    async def body(connection: Connection) -> None:
        await connection.publish(b"a", routing_key="jobs")
        message = await connection.get("jobs")
        assert message is not None
        message.ack()

    run(transport, body)
    assert not transport.broker.queues["jobs"].unsettled
    assert not transport.broker.queues["jobs"].ready


def test_a_connection_can_be_awaited(transport: FakeTransport) -> None:
    async def main() -> list[str]:
        connection = await Connection(transport, Options(Address(), None, None, 5.0))
        try:
            return [vhost.name for vhost in await connection.admin.list_vhosts()]
        finally:
            await connection.close()

    assert asyncio.run(main()) == ["/"]
    assert transport.is_closed


def test_the_time_of_a_call_begins_when_it_is_made(transport: FakeTransport) -> None:
    """Calls that waited for a thread took longer than their time."""

    async def main() -> BaseException | None:
        options = Options(Address(), None, None, 0.1)
        async with Connection(transport, options) as connection:
            may_go = threading.Event()
            threads = [asyncio.create_task(connection._in_thread(may_go.wait, 60)) for _ in range(aio.THREADS)]
            await asyncio.sleep(0)
            late = asyncio.create_task(connection.declare_queue("jobs"))
            await asyncio.sleep(0.2)
            may_go.set()
            await asyncio.gather(late, *threads, return_exceptions=True)
            return late.exception()

    refusal = asyncio.run(main())
    assert isinstance(refusal, penstock.DeadlineError), refusal
    assert "no thread within 100 ms" in str(refusal)
    assert "jobs" not in transport.broker.queues
