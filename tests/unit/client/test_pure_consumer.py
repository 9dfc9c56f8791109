"""The consumer over grpcio, with streams whose other end is the test."""

from collections.abc import Iterator, Sequence

import pytest
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped, unused-ignore]

from penstock.client import pure_consumer
from penstock.client.backoff import Backoff
from penstock.client.pure_consumer import PureConsumer, PureMessage
from penstock.client.transport import ConsumerOptions, StatusError
from penstock.v1 import messaging_pb2
from support.fake_streams import FakeStream, FakeStreams

WAIT_MS = 5_000


@pytest.fixture
def streams() -> FakeStreams:
    return FakeStreams()


@pytest.fixture
def consumer(streams: FakeStreams) -> Iterator[PureConsumer]:
    consumer = PureConsumer(streams, ConsumerOptions("/", "jobs", prefetch=7), Backoff(lambda: 0.0, first=0.0))
    yield consumer
    consumer.close()


@pytest.fixture
def stream(consumer: PureConsumer, streams: FakeStreams) -> FakeStream:
    stream = streams.next_stream()
    stream.say(messaging_pb2.ConsumeResponse(opened=messaging_pb2.ConsumeOpened(consumer_tag="ctag-1")))
    return stream


def deliver(stream: FakeStream, *sequences: int) -> None:
    response = messaging_pb2.ConsumeResponse()
    for sequence in sequences:
        response.deliveries.deliveries.add(sequence=sequence, body=str(sequence).encode())
    stream.say(response)


def taken(consumer: PureConsumer, count: int) -> list[PureMessage]:
    found: list[PureMessage] = []
    while len(found) < count:
        batch: Sequence[PureMessage] = consumer.wait(1_000, WAIT_MS)
        assert batch, f"only {len(found)} arrived"
        found += batch
    return found


def settled(stream: FakeStream, count: int) -> list[tuple[int, int]]:
    """Return outcome and sequence of each settlement, sorted, once there are `count`."""
    size = 2
    while True:
        found = []
        for payload in stream.sent(size):
            settle = messaging_pb2.ConsumeRequest.FromString(payload).settle
            for span in settle.ranges:
                found += [(int(settle.outcome), sequence) for sequence in range(span.first, span.last + 1)]
        if len(found) >= count:
            return sorted(found)
        size += 1


def test_a_stream_opens_with_what_was_asked(stream: FakeStream) -> None:
    opening = messaging_pb2.ConsumeRequest.FromString(stream.sent(1)[0]).open

    assert (opening.vhost, opening.queue, opening.prefetch) == ("/", "jobs", 7)


def test_deliveries_are_taken_in_order_and_no_more_than_asked(consumer: PureConsumer, stream: FakeStream) -> None:
    deliver(stream, 1, 2, 3)

    first = consumer.wait(2, WAIT_MS)
    rest = consumer.wait(2, WAIT_MS)

    assert [delivery.body for delivery in [*first, *rest]] == [b"1", b"2", b"3"]
    assert consumer.consumer_tag == "ctag-1"


def test_settlements_go_out_once_each(consumer: PureConsumer, stream: FakeStream) -> None:
    deliver(stream, 1, 2, 3, 5)
    deliveries = taken(consumer, 4)

    for delivery in deliveries[:3]:
        delivery.ack()
        delivery.nack()
    deliveries[3].nack()

    assert settled(stream, 4) == [(1, 1), (1, 2), (1, 3), (3, 5)]


def test_closing_sends_what_is_gathered(consumer: PureConsumer, stream: FakeStream) -> None:
    deliver(stream, 1, 2)
    for delivery in taken(consumer, 2):
        delivery.ack()
    consumer.close()

    stream.wait_until_done_sending()
    assert settled(stream, 2) == [(1, 1), (1, 2)]


def test_a_consumer_resumes_after_a_broken_connection_and_forgets_what_it_held(
    consumer: PureConsumer, streams: FakeStreams, stream: FakeStream
) -> None:
    deliver(stream, 1)
    old = taken(consumer, 1)[0]
    stream.fail(14, "connection reset")

    resumed = streams.next_stream()
    resumed.say(messaging_pb2.ConsumeResponse(opened=messaging_pb2.ConsumeOpened(consumer_tag="ctag-1")))
    deliver(resumed, 1, 2)
    again = taken(consumer, 2)
    old.ack()
    again[1].ack()

    assert settled(resumed, 1) == [(1, 2)]


def test_what_arrived_with_auto_ack_outlives_its_connection(streams: FakeStreams) -> None:
    options = ConsumerOptions("/", "jobs", prefetch=7, auto_ack=True)
    consumer = PureConsumer(streams, options, Backoff(lambda: 0.0, first=0.0))
    stream = streams.next_stream()
    stream.say(messaging_pb2.ConsumeResponse(opened=messaging_pb2.ConsumeOpened(consumer_tag="ctag-1")))
    deliver(stream, 1, 2)
    assert [message.sequence for message in consumer.wait(1, WAIT_MS)] == [1]
    stream.fail(14, "connection reset")

    deliver(streams.next_stream(), 3)

    assert [message.sequence for message in taken(consumer, 2)] == [2, 3]
    consumer.close()


def test_a_cancelled_consumer_does_not_come_back(consumer: PureConsumer, stream: FakeStream) -> None:
    stream.say(messaging_pb2.ConsumeResponse(cancelled=messaging_pb2.ConsumeCancelled(reason="queue deleted")))

    with pytest.raises(StatusError, match="queue deleted"):
        consumer.wait(1, WAIT_MS)


def test_a_missing_queue_ends_the_consumer_for_good(consumer: PureConsumer, stream: FakeStream) -> None:
    stream.fail(5, "no queue 'jobs'")

    with pytest.raises(StatusError, match="no queue"):
        consumer.wait(1, WAIT_MS)


def reached_limit() -> bytes:
    info = error_details_pb2.ErrorInfo(reason="LIMIT_REACHED", domain="penstock")
    status = status_pb2.Status(code=8)
    status.details.add().Pack(info)
    encoded: bytes = status.SerializeToString()
    return encoded


# Refusals that the client's own last connection may have caused.
OF_OWN_PAST = [(9, "consumed exclusively", b""), (8, "as many connections as it may", reached_limit())]


@pytest.mark.parametrize("refusal", OF_OWN_PAST, ids=["exclusive", "limit"])
def test_a_consumer_comes_back_when_the_broker_has_let_go_of_its_old_connection(
    consumer: PureConsumer, streams: FakeStreams, stream: FakeStream, refusal: tuple[int, str, bytes]
) -> None:
    deliver(stream, 1)
    taken(consumer, 1)
    stream.fail(14, "connection reset")

    for _ in range(3):
        streams.next_stream().fail(*refusal)
    deliver(streams.next_stream(), 1)

    assert len(taken(consumer, 1)) == 1


@pytest.mark.parametrize("refusal", OF_OWN_PAST, ids=["exclusive", "limit"])
def test_a_consumer_that_never_was_open_is_told_of_a_refusal_at_once(
    consumer: PureConsumer, streams: FakeStreams, refusal: tuple[int, str, bytes]
) -> None:
    streams.next_stream().fail(*refusal)

    with pytest.raises(StatusError, match=refusal[1]):
        consumer.wait(1, WAIT_MS)


def test_a_consumer_of_a_full_broker_goes_on_trying(consumer: PureConsumer, streams: FakeStreams) -> None:
    streams.next_stream().fail(8, "the disk is full")
    deliver(streams.next_stream(), 1)

    assert len(taken(consumer, 1)) == 1


def test_a_changed_prefetch_is_sent_and_kept_for_the_next_connection(
    consumer: PureConsumer, streams: FakeStreams, stream: FakeStream
) -> None:
    consumer.flow(20)
    assert messaging_pb2.ConsumeRequest.FromString(stream.sent(2)[1]).flow.prefetch == 20

    stream.fail(14, "connection reset")
    resumed = streams.next_stream()
    assert messaging_pb2.ConsumeRequest.FromString(resumed.sent(1)[0]).open.prefetch == 20


def test_a_full_consumer_reads_on_when_something_was_taken(
    consumer: PureConsumer, stream: FakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pure_consumer, "WAITING_BYTES_MAX", 1)
    for sequence in range(1, 6):
        deliver(stream, sequence)

    batches = [consumer.wait(1_000, WAIT_MS) for _ in range(5)]

    assert [[message.body for message in batch] for batch in batches] == [[b"1"], [b"2"], [b"3"], [b"4"], [b"5"]]


@pytest.mark.parametrize("name", ["\udcff", 5])
def test_a_queue_whose_name_cannot_be_sent_is_refused_at_once(streams: FakeStreams, name: str) -> None:
    with pytest.raises((UnicodeEncodeError, TypeError)):
        PureConsumer(streams, ConsumerOptions("/", name), Backoff(lambda: 0.0, first=0.0))
