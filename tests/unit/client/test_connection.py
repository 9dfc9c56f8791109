"""The connection for threads, over a broker in memory."""

from collections.abc import Iterator, Sequence
from itertools import count, islice
from threading import Barrier, Thread, Timer

import pytest

import penstock
from penstock.client import publishing, sync
from penstock.client.closing import Grace
from penstock.client.publishing import Publishing
from penstock.client.sync import Connection
from penstock.client.transport import Outcome, PublisherOptions, StatusError
from penstock.v1 import admin_pb2
from support.fake_transport import FakeBroker, FakeTransport, connect_to


@pytest.fixture
def transport() -> FakeTransport:
    return FakeTransport(FakeBroker())


@pytest.fixture
def connection(transport: FakeTransport) -> Iterator[Connection]:
    with connect_to(transport) as connection:
        connection.declare_queue("jobs")
        yield connection


def test_a_published_message_is_got_with_its_headers(connection: Connection) -> None:
    connection.publish(b"body", routing_key="jobs", headers={"a": 1})

    message = connection.get("jobs")

    assert message is not None
    assert (message.body, message.routing_key, message.headers) == (b"body", "jobs", {"a": 1})


def test_an_empty_queue_gives_none(connection: Connection) -> None:
    assert connection.get("jobs") is None


def test_a_got_message_is_settled_once(connection: Connection, transport: FakeTransport) -> None:
    connection.publish(b"body", routing_key="jobs")
    message = connection.get("jobs")
    assert message is not None

    message.nack(requeue=True)
    message.ack()

    assert [name for name, _ in transport.broker.calls].count("Settle") == 1
    again = connection.get("jobs")
    assert again is not None
    assert again.redelivered


def test_a_refused_publish_raises_what_the_broker_said(connection: Connection) -> None:
    with pytest.raises(penstock.NotFoundError, match="no exchange 'missing'"):
        connection.publish(b"body", exchange="missing")


def test_a_mandatory_message_without_a_queue_is_returned(connection: Connection) -> None:
    with pytest.raises(penstock.ReturnedError, match="nowhere"):
        connection.publish(b"body", routing_key="nowhere", mandatory=True)


def test_publishing_goes_on_after_a_refusal(connection: Connection) -> None:
    with pytest.raises(penstock.NotFoundError):
        connection.publish(b"a", exchange="missing")

    connection.publish(b"b", routing_key="jobs")

    message = connection.get("jobs", auto_ack=True)
    assert message is not None
    assert message.body == b"b"


def test_many_are_published_in_order_from_any_iterable(connection: Connection) -> None:
    bodies = [str(number).encode() for number in range(2_500)]

    assert connection.publish_many(iter(bodies), routing_key="jobs") == 2_500

    assert [message.body for message in connection.consume("jobs", auto_ack=True, idle_timeout=0)] == bodies


def test_many_raise_the_first_refusal_and_say_how_many(connection: Connection) -> None:
    with pytest.raises(penstock.NotFoundError) as refused:
        connection.publish_many([b"a", b"b"], exchange="missing")

    assert "2 of 2 messages" in refused.value.__notes__[0]


def test_no_confirm_in_time_is_a_deadline(transport: FakeTransport) -> None:
    with connect_to(transport, timeout=0.001) as connection:
        connection.declare_queue("jobs")
        connection.publish(b"warm", routing_key="jobs")
        transport.publishers[0].hold()

        with pytest.raises(penstock.DeadlineError, match="may have been stored"):
            connection.publish(b"body", routing_key="jobs")


def test_no_confirm_from_a_broker_that_is_gone_says_so(transport: FakeTransport) -> None:
    with connect_to(transport, timeout=0.001) as connection:
        connection.declare_queue("jobs")
        connection.publish(b"warm", routing_key="jobs")
        transport.publishers[0].hold()
        transport.publishers[0].lost = "Connection refused"

        with pytest.raises(penstock.ConnectionLostError, match=r"lost \(Connection refused\).*may have been stored"):
            connection.publish(b"body", routing_key="jobs")


def test_threads_that_wait_together_hear_of_the_silence_together(
    transport: FakeTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each started its time limit when the one before had given up: a hundred waited a hundred times as long."""
    monkeypatch.setattr(publishing, "WAIT_MS", 1)
    waits, threads_count, limit = 0, 20, 20
    with connect_to(transport, timeout=limit / 1_000) as connection:
        connection.declare_queue("jobs")
        connection.publish(b"warm", routing_key="jobs")
        publisher, together, told = transport.publishers[0], Barrier(threads_count), []
        publisher.hold()
        wait = publisher.wait

        def counted_wait(timeout_ms: int) -> Sequence[Outcome]:
            nonlocal waits
            waits += 1
            return wait(timeout_ms)

        monkeypatch.setattr(publisher, "wait", counted_wait)

        def publish() -> None:
            together.wait()
            with pytest.raises(penstock.DeadlineError):
                connection.publish(b"body", routing_key="jobs")
            told.append(True)

        threads = [Thread(target=publish) for _ in range(threads_count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert len(told) == threads_count
    assert waits < threads_count * limit / 2


def test_more_messages_than_may_be_without_confirms_do_not_wait_for_ever() -> None:
    """Messages above the limit waited for it without a limit, and with them all other publishers."""
    publisher = FakeTransport(FakeBroker(), in_flight_max=10).publisher(PublisherOptions("/"))
    publisher.hold()
    many = Publishing(publisher, StatusError, 1, 10)

    with pytest.raises(penstock.DeadlineError, match="was not sent"):
        many.publish_many([b"%d" % number for number in range(25)], "", "", None, False)
    with pytest.raises(penstock.DeadlineError, match="was not sent"):
        many.publish(b"one more", "", "", None, False)
    publisher.lost = "Connection refused"
    with pytest.raises(penstock.ConnectionLostError, match=r"lost \(Connection refused\).*was not sent"):
        many.publish_keyed([(None, b"and another")], ("", "", None, False), 0)

    assert [body for body, *_ in publisher.keyed[:10]] == [b"%d" % number for number in range(10)]
    publisher.is_holding = False
    publisher.release()
    assert many.publish_many([b"%d" % number for number in range(25)], "", "", None, False) == 25
    many.close()


def test_a_close_without_a_broker_does_not_wait_for_confirms_and_tells_what_has_none(
    transport: FakeTransport, caplog: pytest.LogCaptureFixture
) -> None:
    publisher = transport.publisher(PublisherOptions("/"))
    publisher.hold()
    publisher.publish_many([b"a", b"b", b"c"])
    publisher.release(2)
    publisher.lost = "Connection refused"
    seconds = count()

    # The clock moves with each read, so that a day passes at once; the test waits for two seconds of it.
    Publishing(publisher, StatusError, 1_000).close(Grace(86_400.0, lambda: float(next(seconds))))

    assert next(seconds) < 10
    assert publisher.is_closed
    assert "closed with unconfirmed messages: 2; the connection is lost (Connection refused)" in caplog.text


def test_a_close_waits_for_the_confirms_of_a_broker_that_is_there(
    transport: FakeTransport, caplog: pytest.LogCaptureFixture
) -> None:
    connection = connect_to(transport, timeout=600.0)
    connection.declare_queue("jobs")
    connection.publish(b"warm", routing_key="jobs")
    publisher = transport.publishers[0]
    publisher.hold()
    publisher.publish(b"a", "", "jobs")
    Timer(0.05, publisher.release).start()

    connection.close()

    assert publisher.is_closed
    assert not caplog.records


def test_consumers_that_do_not_end_are_waited_for_together(
    transport: FakeTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(sync, "Grace", lambda timeout: Grace(timeout, lambda: now[0]))
    connection = connect_to(transport)
    connection.declare_queue("jobs")
    kept = [connection.consume("jobs") for _ in range(50)]
    for consumer in transport.consumers:

        def end(timeout_ms: int) -> None:
            assert all(each.is_closing for each in transport.consumers)
            now[0] += timeout_ms / 1_000

        consumer.on_close = end

    connection.close()

    assert now[0] == 2.0
    assert all(consumer.is_closed for consumer in transport.consumers)
    assert len(kept) == 50


def test_threads_that_publish_at_once_each_get_their_own_outcome(
    connection: Connection, transport: FakeTransport
) -> None:
    results: dict[int, str] = {}

    def publish(number: int) -> None:
        try:
            for _ in range(50):
                connection.publish(b"body", exchange="missing" if number % 2 else "", routing_key="jobs")
            results[number] = "confirmed"
        except penstock.NotFoundError:
            results[number] = "refused"

    threads = [Thread(target=publish, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == {number: "refused" if number % 2 else "confirmed" for number in range(8)}


def test_a_message_after_the_end_of_its_publisher_goes_to_a_new_one(
    connection: Connection, transport: FakeTransport
) -> None:
    connection.publish(b"a", routing_key="jobs")
    transport.publishers[0].end(7, "user 'walter' may not enter vhost '/'")

    connection.publish(b"b", routing_key="jobs")

    assert len(transport.publishers) == 2
    assert transport.publishers[0].is_closed


def test_a_message_that_waits_when_its_publisher_ends_raises_why(
    connection: Connection, transport: FakeTransport
) -> None:
    connection.publish(b"a", routing_key="jobs")
    publisher = transport.publishers[0]
    publisher.hold()
    publisher.on_held = Timer(0, lambda: publisher.end(7, "user 'walter' may not enter vhost '/'")).start

    with pytest.raises(penstock.AccessRefusedError, match="walter"):
        connection.publish(b"b", routing_key="jobs")


def test_a_message_the_publisher_refuses_leaves_it_usable(connection: Connection, transport: FakeTransport) -> None:
    with pytest.raises(penstock.InvalidArgumentError, match="300 bytes"):
        connection.publish(b"a", routing_key="k" * 300)

    connection.publish(b"b", routing_key="jobs")
    assert len(transport.publishers) == 1


def test_breaking_out_of_a_loop_ends_the_consumer_and_returns_the_rest(
    connection: Connection, transport: FakeTransport
) -> None:
    connection.publish_many([b"a", b"b", b"c"], routing_key="jobs")

    for message in connection.consume("jobs"):
        message.ack()
        break

    assert transport.consumers[0].is_closed
    assert [message.body for message in connection.consume("jobs", idle_timeout=0)] == [b"b", b"c"]


def test_within_a_with_an_iteration_goes_on_where_the_last_one_stopped(connection: Connection) -> None:
    connection.publish_many([b"a", b"b", b"c"], routing_key="jobs")

    with connection.consume("jobs") as messages:
        first = [message.body for message in islice(messages, 1)]
        rest = [message.body for message in islice(messages, 2)]

    assert (first, rest) == ([b"a"], [b"b", b"c"])


def test_closing_the_connection_ends_a_loop_that_waits(connection: Connection, transport: FakeTransport) -> None:
    messages = connection.consume("jobs")
    found: list[bytes] = []
    waiting = Thread(target=lambda: found.extend(message.body for message in messages))
    waiting.start()

    connection.close()
    transport.consumers[0].end(14, "closed")
    waiting.join()

    assert found == []


def test_a_cancelled_consumer_raises_what_the_broker_said(connection: Connection, transport: FakeTransport) -> None:
    messages = connection.consume("jobs")
    transport.consumers[0].end(1, "queue 'jobs' was deleted")

    with pytest.raises(penstock.CancelledError, match="deleted"):
        next(iter(messages))


def test_consuming_from_a_queue_that_is_not_there_raises(connection: Connection) -> None:
    with pytest.raises(penstock.NotFoundError, match="no queue 'none'"):
        next(iter(connection.consume("none")))


def test_listing_goes_through_all_pages(connection: Connection, transport: FakeTransport) -> None:
    for number in range(5):
        connection.declare_queue(f"q{number}")
    transport.broker.page_size = 2

    assert [queue.name for queue in connection.admin.list_queues()] == ["jobs", "q0", "q1", "q2", "q3", "q4"]


def test_declaring_says_what_the_queue_holds(connection: Connection) -> None:
    connection.publish(b"a", routing_key="jobs")

    queue = connection.declare_queue("jobs")

    assert (queue.name, queue.ready_count, queue.consumer_count) == ("jobs", 1, 0)


def test_a_declaration_carries_what_was_asked(connection: Connection, transport: FakeTransport) -> None:
    connection.declare_queue("q", durable=False, exclusive=True, auto_delete=True, arguments={"x-durability": "os"})

    request = admin_pb2.DeclareQueueRequest.FromString(transport.broker.calls[-1][1])
    queue = request.queue
    assert (request.vhost, queue.durable, queue.exclusive, queue.auto_delete) == ("/", False, True, True)
    assert queue.arguments["x-durability"].string_value == "os"


def test_a_binding_names_both_ends_and_the_kind(connection: Connection, transport: FakeTransport) -> None:
    connection.bind_exchange("inner", "outer", "key", {"x": 1})

    name, payload = transport.broker.calls[-1]
    binding = admin_pb2.BindRequest.FromString(payload).binding
    assert name == "Bind"
    assert (binding.source, binding.destination, binding.routing_key) == ("outer", "inner", "key")
    assert binding.destination_kind == admin_pb2.DESTINATION_KIND_EXCHANGE


def test_a_user_without_a_password_keeps_it(connection: Connection, transport: FakeTransport) -> None:
    connection.admin.put_user("walter", tags=["administrator"])

    request = admin_pb2.PutUserRequest.FromString(transport.broker.calls[-1][1])
    assert not request.HasField("password")
    assert request.tags == ["administrator"]


def test_a_refused_call_raises_its_kind(connection: Connection, transport: FakeTransport) -> None:
    transport.broker.refusal = StatusError(9, "queue 'jobs' is durable; you asked for transient", b"")

    with pytest.raises(penstock.PreconditionFailedError, match="durable"):
        connection.declare_queue("jobs", durable=False)


def test_closing_closes_everything_and_says_so_afterwards(transport: FakeTransport) -> None:
    connection = connect_to(transport)
    connection.declare_queue("jobs")
    connection.publish(b"a", routing_key="jobs")
    consumption = connection.consume("jobs")

    connection.close()
    connection.close()

    assert transport.is_closed
    assert transport.publishers[0].is_closed
    assert transport.consumers[0].is_closed
    assert list(consumption) == []
    with pytest.raises(penstock.ClosedError):
        connection.publish(b"b", routing_key="jobs")
    with pytest.raises(penstock.ClosedError):
        connection.admin.status()


@pytest.mark.parametrize("prefetch", [0, -1, 2**32])
def test_a_prefetch_must_be_a_number_that_the_broker_knows(connection: Connection, prefetch: int) -> None:
    with pytest.raises(ValueError, match=f"prefetch is {prefetch}; it must be from 1 to 4,294,967,295"):
        connection.consume("jobs", prefetch=prefetch)


@pytest.mark.parametrize("prefetch", [-1, 2**32])
def test_a_changed_prefetch_must_be_a_number_that_the_broker_knows(connection: Connection, prefetch: int) -> None:
    with connection.consume("jobs") as messages, pytest.raises(ValueError, match=f"prefetch is {prefetch}; "):
        messages.flow(prefetch)
