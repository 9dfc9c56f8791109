"""Small parts: the back-off, the descriptor that wakes an event loop, and the fakes themselves."""

import gc
import select
import warnings

from penstock.client.backoff import Backoff
from penstock.client.transport import ConsumerOptions, PublisherOptions
from penstock.client.wake import Wake
from support.fake_streams import FakeStreams
from support.fake_transport import FakeBroker, FakeTransport, connect_to


def is_readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


def test_waits_double_up_to_the_longest_and_start_again_after_success() -> None:
    backoff = Backoff(lambda: 1.0, first=1.0, most=5.0)

    waits = [backoff.delay() for _ in range(5)]
    backoff.reset()

    assert waits == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert backoff.delay() == 1.0


def test_at_least_half_of_a_wait_is_certain() -> None:
    assert Backoff(lambda: 0.0, first=1.0).delay() == 0.5


def test_a_wake_is_readable_from_set_to_clear() -> None:
    wake = Wake()
    assert not is_readable(wake.fileno())

    wake.set()
    wake.set()
    assert is_readable(wake.fileno())

    wake.clear()
    assert not is_readable(wake.fileno())
    wake.close()
    wake.set()


def test_a_wake_that_is_dropped_leaves_no_open_sockets_also_in_a_circle() -> None:
    class Circle:
        def __init__(self) -> None:
            self.itself = self
            self.wake = Wake()

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        Circle()
        gc.collect()

    assert not [each for each in found if issubclass(each.category, ResourceWarning)]


def test_the_fake_publisher_numbers_and_holds() -> None:
    publisher = FakeTransport(FakeBroker(), in_flight_max=2).publisher(PublisherOptions("/"))
    publisher.hold()

    assert [publisher.publish(b"a") for _ in range(3)] == [1, 2, 0]
    assert publisher.take() == []
    publisher.release(2)
    assert publisher.take() == [(2, 2, 0, "")]
    assert publisher.publish(b"a") == 3
    publisher.close()


def test_the_fake_consumer_keeps_to_its_prefetch_and_gives_back() -> None:
    transport = FakeTransport(FakeBroker())
    with connect_to(transport) as connection:
        connection.declare_queue("jobs")
        connection.publish_many([b"a", b"b", b"c"], routing_key="jobs")
    consumer = transport.consumer(ConsumerOptions("/", "jobs", prefetch=2))

    assert [delivery.body for delivery in consumer.take(10)] == [b"a", b"b"]
    consumer.close()

    assert [stored.body for stored in transport.broker.queues["jobs"].ready] == [b"a", b"b", b"c"]
    assert [stored.delivery_count for stored in transport.broker.queues["jobs"].ready] == [1, 1, 0]


def test_the_fake_stream_shows_requests_and_says_responses() -> None:
    streams = FakeStreams()
    opened = streams.open("/m", iter([b"1", b"2"]))
    stream = streams.next_stream()

    assert stream.wait_until_done_sending() == [b"1", b"2"]
    assert list(opened) == []
