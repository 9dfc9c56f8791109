"""The publisher over grpcio, with streams whose other end is the test."""

import select
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.client.backoff import Backoff
from penstock.client.following import Wait
from penstock.client.properties import encode_properties
from penstock.client.publishing import Publishing
from penstock.client.pure_publisher import PureOutcome, PurePublisher
from penstock.client.transport import PublisherOptions, StatusError
from penstock.v1 import messaging_pb2
from support.fake_streams import FakeStream, FakeStreams
from support.waiting import eventually

WAIT_MS = 5_000


@pytest.fixture
def streams() -> FakeStreams:
    return FakeStreams()


@pytest.fixture
def publisher(streams: FakeStreams) -> Iterator[PurePublisher]:
    options = PublisherOptions("/", durability=1, in_flight_max=100, batch_max=10, message_bytes_max=1_000)
    publisher = PurePublisher(streams, options, Backoff(lambda: 0.0, first=0.0))
    yield publisher
    publisher.close()


def batches(stream: FakeStream, count: int) -> list[list[bytes]]:
    """Return the bodies of each batch, once there are `count` messages."""
    size = 1
    while True:
        requests = [messaging_pb2.PublishRequest.FromString(payload).batch for payload in stream.sent(size)[1:]]
        if sum(len(batch.messages) for batch in requests) >= count:
            return [[message.body for message in batch.messages] for batch in requests]
        size += 1


def bodies(stream: FakeStream, count: int) -> list[bytes]:
    return [body for batch in batches(stream, count) for body in batch]


def confirm(stream: FakeStream, first: int, last: int) -> None:
    stream.say(messaging_pb2.PublishResponse(confirmed=[{"first": first, "last": last}]))


def outcomes(publisher: PurePublisher, count: int) -> list[PureOutcome]:
    found: list[PureOutcome] = []
    while sum(last - first + 1 for first, last, _, _ in found) < count:
        taken = publisher.wait(WAIT_MS)
        assert taken, f"only {found}"
        found += taken
    return found


def test_a_stream_opens_with_its_vhost_and_durability(publisher: PurePublisher, streams: FakeStreams) -> None:
    opening = messaging_pb2.PublishRequest.FromString(streams.next_stream().sent(1)[0]).open

    assert (opening.vhost, opening.durability) == ("/", messaging_pb2.DURABILITY_OS)


def test_what_waits_goes_out_in_batches_in_order(publisher: PurePublisher, streams: FakeStreams) -> None:
    stream = streams.next_stream()

    last = publisher.publish_many([str(number).encode() for number in range(25)])

    found = batches(stream, 25)
    assert last == 25
    assert [body for batch in found for body in batch] == [str(number).encode() for number in range(25)]
    assert max(len(batch) for batch in found) <= 10


def test_each_message_keeps_its_own_address(publisher: PurePublisher, streams: FakeStreams) -> None:
    stream = streams.next_stream()
    publisher.publish_many([b"a"], "one", "k1")
    publisher.publish_many([b"b"], "two", "")

    found = []
    bodies(stream, 2)
    for payload in stream.sent(2)[1:]:
        batch = messaging_pb2.PublishRequest.FromString(payload).batch
        for message in batch.messages:
            exchange = message.exchange if message.HasField("exchange") else batch.exchange
            key = message.routing_key if message.HasField("routing_key") else batch.routing_key
            found.append((message.body, exchange, key))
    assert found == [(b"a", "one", "k1"), (b"b", "two", "")]


def test_headers_are_sent_in_the_order_of_their_names(publisher: PurePublisher, streams: FakeStreams) -> None:
    stream = streams.next_stream()
    names = [f"name{number}" for number in range(10, 30)]
    properties = encode_properties(None, dict.fromkeys(reversed(names), 1))

    publisher.publish_many([b"a"], properties=properties)

    bodies(stream, 1)
    (sent,) = stream.sent(2)[1:]
    places = [sent.index(name.encode() + b"\x12") for name in names]
    assert places == sorted(places)


def test_confirms_returns_and_rejections_come_out(publisher: PurePublisher, streams: FakeStreams) -> None:
    stream = streams.next_stream()
    publisher.publish_many([b"a"] * 4)
    bodies(stream, 4)

    response = messaging_pb2.PublishResponse()
    response.confirmed.add(first=1, last=2)
    response.returned.add(number=3, reason="no queue")
    response.rejected.add(first=4, last=4, code=5, reason="no exchange")
    stream.say(response)

    assert outcomes(publisher, 4) == [(1, 2, 0, ""), (3, 3, -1, "no queue"), (4, 4, 5, "no exchange")]


def test_messages_that_have_an_outcome_take_no_room_behind_one_that_has_none(
    publisher: PurePublisher, streams: FakeStreams
) -> None:
    """The count of outcomes showed space for many; the next publish then waited without a limit, with all others."""
    stream = streams.next_stream()
    for round_ in range(4):
        first = 99 * round_ + 2
        assert publisher.publish_many([b"a"] * (99 + (not round_))) == first + 98
        bodies(stream, first + 98)
        confirm(stream, first, first + 98)
        outcomes(publisher, 99)

    assert publisher.publish(b"b") == 398
    confirm(stream, 1, 1)
    assert outcomes(publisher, 1) == [(1, 1, 0, "")]


def test_too_many_without_an_outcome_are_not_taken(publisher: PurePublisher, streams: FakeStreams) -> None:
    stream = streams.next_stream()
    publisher.publish_many([b"a"] * 100)
    bodies(stream, 100)

    assert publisher.publish(b"b") == 0
    confirm(stream, 1, 1)
    outcomes(publisher, 1)
    assert publisher.publish(b"b") == 101


def test_after_a_broken_connection_only_what_has_no_outcome_is_sent_again(
    publisher: PurePublisher, streams: FakeStreams
) -> None:
    broken = streams.next_stream()
    publisher.publish_many([b"1", b"2", b"3", b"4", b"5"])
    bodies(broken, 5)
    confirm(broken, 1, 1)
    confirm(broken, 3, 3)
    outcomes(publisher, 2)

    broken.fail(14, "connection reset")
    resumed = streams.next_stream()

    assert bodies(resumed, 3) == [b"2", b"4", b"5"]
    confirm(resumed, 1, 3)
    assert outcomes(publisher, 3) == [(2, 2, 0, ""), (4, 5, 0, "")]
    assert publisher.publish(b"6") == 6
    assert publisher.flush(0) is False


def test_nothing_passes_a_refused_message_of_a_producer_before_it_is_sent_again(streams: FakeStreams) -> None:
    options = PublisherOptions("/", 1, in_flight_max=100, batch_max=10, message_bytes_max=1_000, producer="p")
    publisher = PurePublisher(streams, options, Backoff(lambda: 0.0, first=0.0))
    broken = streams.next_stream()
    publisher.publish_many([b"1", b"2", b"3", b"4"], sequence=101)
    bodies(broken, 4)
    broken.say(messaging_pb2.PublishResponse(rejected=[{"first": 2, "last": 2, "code": 5, "reason": "no exchange"}]))
    assert outcomes(publisher, 1) == [(2, 2, 5, "no exchange")]

    broken.fail(14, "connection reset")
    resumed = streams.next_stream()

    assert bodies(resumed, 1) == [b"1"]
    assert [(first, code) for first, _, code, _ in outcomes(publisher, 2)] == [(3, 9), (4, 9)]
    publisher.publish(b"passed", sequence=105)
    assert [(first, code) for first, _, code, _ in outcomes(publisher, 1)] == [(5, 9)]
    publisher.publish_many([b"2", b"3"], sequence=102)
    assert bodies(resumed, 3) == [b"1", b"2", b"3"]
    confirm(resumed, 1, 3)
    assert [(first, last) for first, last, _, _ in outcomes(publisher, 3)] == [(1, 1), (6, 7)]
    publisher.close()


def sequences(stream: FakeStream, count: int) -> list[tuple[int, bytes]]:
    """Return the sequence and the body of each message, once there are so many."""
    bodies(stream, count)
    found = []
    for payload in stream.sent(2)[1:]:
        batch = messaging_pb2.PublishRequest.FromString(payload).batch
        found += [(batch.producer_sequence + at, message.body) for at, message in enumerate(batch.messages)]
    return found


def test_a_publisher_that_numbers_messages_itself_passes_over_a_refused_one(streams: FakeStreams) -> None:
    options = PublisherOptions("/", in_flight_max=100, batch_max=10, producer="p", numbers_itself=True)
    publisher = PurePublisher(streams, options, Backoff(lambda: 0.0, first=60.0))
    first = streams.next_stream()
    publisher.publish_many([b"1", b"2", b"3", b"4"])
    assert sequences(first, 4) == [(1, b"1"), (2, b"2"), (3, b"3"), (4, b"4")]
    response = messaging_pb2.PublishResponse(confirmed=[{"first": 1, "last": 1}])
    response.rejected.add(first=2, last=2, code=5, reason="no exchange")
    response.rejected.add(first=3, last=4, code=9, reason="sequence 2 was refused")
    first.say(response)

    second = streams.next_stream()
    assert first.is_cancelled
    assert outcomes(publisher, 2) == [(1, 1, 0, ""), (2, 2, 5, "no exchange")]
    publisher.publish(b"5")
    assert sequences(second, 4) == [(2, b""), (3, b"3"), (4, b"4"), (5, b"5")]

    second.fail(14, "connection reset", wait=Wait.NONE)
    third = streams.next_stream()
    assert sequences(third, 4) == [(2, b""), (3, b"3"), (4, b"4"), (5, b"5")]
    confirm(third, 1, 2)
    assert outcomes(publisher, 1) == [(3, 3, 0, "")]

    third.fail(14, "connection reset", wait=Wait.NONE)
    fourth = streams.next_stream()
    assert sequences(fourth, 2) == [(4, b"4"), (5, b"5")]
    confirm(fourth, 1, 2)
    assert outcomes(publisher, 2) == [(4, 5, 0, "")]
    publisher.close()


def test_a_publisher_ends_whose_filler_is_refused(streams: FakeStreams) -> None:
    options = PublisherOptions("/", producer="p", numbers_itself=True)
    publisher = PurePublisher(streams, options, Backoff(lambda: 0.0, first=60.0))
    first = streams.next_stream()
    publisher.publish(b"1")
    bodies(first, 1)
    first.say(messaging_pb2.PublishResponse(rejected=[{"first": 1, "last": 1, "code": 5, "reason": "no exchange"}]))
    second = streams.next_stream()
    bodies(second, 1)
    second.say(messaging_pb2.PublishResponse(rejected=[{"first": 1, "last": 1, "code": 7, "reason": "no permission"}]))

    assert outcomes(publisher, 1) == [(1, 1, 5, "no exchange")]
    with pytest.raises(StatusError, match=r"cannot be passed over.*no permission"):
        publisher.wait(WAIT_MS)
    publisher.close()


def test_a_broken_connection_is_tried_again_and_again(publisher: PurePublisher, streams: FakeStreams) -> None:
    publisher.publish(b"a")
    for _ in range(5):
        streams.next_stream().fail(14, "connection refused")

    stream = streams.next_stream()
    assert bodies(stream, 1) == [b"a"]
    confirm(stream, 1, 1)
    assert outcomes(publisher, 1) == [(1, 1, 0, "")]


def test_a_lost_connection_says_why_until_there_is_another_one(streams: FakeStreams) -> None:
    publisher = PurePublisher(streams, PublisherOptions("/"), Backoff(lambda: 0.0, first=60.0))
    assert publisher.lost is None
    streams.next_stream().fail(14, "connection refused")

    eventually(lambda: publisher.lost, "connection refused")
    publisher.close()


def test_a_new_connection_is_not_lost(publisher: PurePublisher, streams: FakeStreams) -> None:
    streams.next_stream().fail(14, "connection refused")
    streams.next_stream().sent(1)

    eventually(lambda: publisher.lost, None)


def test_what_a_broker_could_not_store_is_sent_again_with_what_comes_behind_it(
    publisher: PurePublisher, streams: FakeStreams
) -> None:
    """A broker that leads no longer rejects what came, and later messages too: none of that is an outcome."""
    former = streams.next_stream()
    publisher.publish_many([b"1", b"2", b"3", b"4"])
    bodies(former, 4)
    response = messaging_pb2.PublishResponse(confirmed=[{"first": 1, "last": 1}])
    response.rejected.add(first=2, last=3, code=14, reason="another broker leads")
    response.rejected.add(first=4, last=4, code=9, reason="sequence 2 was refused")
    former.say(response)

    leader = streams.next_stream()
    assert former.is_cancelled
    assert bodies(leader, 3) == [b"2", b"3", b"4"]
    confirm(leader, 1, 3)
    assert outcomes(publisher, 4) == [(1, 1, 0, ""), (2, 4, 0, "")]


def test_a_hint_is_followed_without_a_wait(streams: FakeStreams) -> None:
    publisher = PurePublisher(streams, PublisherOptions("/"), Backoff(lambda: 0.0, first=60.0))
    publisher.publish(b"1")
    streams.next_stream().fail(14, "led by another broker", wait=Wait.NONE)

    assert bodies(streams.next_stream(), 1) == [b"1"]
    publisher.close()


def test_a_refused_stream_ends_the_publisher_for_good(publisher: PurePublisher, streams: FakeStreams) -> None:
    publisher.publish(b"a")
    streams.next_stream().fail(16, "wrong password")

    with pytest.raises(StatusError, match="wrong password"):
        publisher.wait(WAIT_MS)
    with pytest.raises(StatusError, match="wrong password"):
        publisher.publish(b"b")


def test_a_name_too_long_is_refused_and_the_publisher_goes_on(publisher: PurePublisher) -> None:
    with pytest.raises(StatusError, match="300 bytes"):
        publisher.publish(b"a", "", "k" * 300)

    assert publisher.publish(b"b") == 1


@pytest.mark.parametrize("body", ["text", {"a": 1}, bytearray(b"a"), None, 7])
def test_a_body_that_is_not_bytes_is_refused_and_the_publisher_goes_on(
    publisher: PurePublisher, streams: FakeStreams, body: Any
) -> None:
    with pytest.raises(TypeError, match="a body must be bytes, not"):
        publisher.publish(body)
    with pytest.raises(TypeError, match="a body must be bytes, not"):
        publisher.publish_many([b"a", body])

    stream = streams.next_stream()
    publisher.publish(b"b")
    assert bodies(stream, 1) == [b"b"]


@pytest.mark.parametrize(
    "fields",
    [(b"e",), ("e", b"k"), ("e", "k", "properties"), ("e", "k", None, False, "key"), ("", "\ud800")],
)
def test_fields_that_cannot_be_sent_are_refused_and_the_publisher_goes_on(
    publisher: PurePublisher, streams: FakeStreams, fields: Any
) -> None:
    with pytest.raises((TypeError, UnicodeEncodeError)):
        publisher.publish(b"a", *fields)

    stream = streams.next_stream()
    publisher.publish(b"b")
    assert bodies(stream, 1) == [b"b"]


def test_a_sequence_beyond_64_bits_is_refused_and_the_publisher_goes_on(
    publisher: PurePublisher, streams: FakeStreams
) -> None:
    for sequence in (-1, 2**64):
        with pytest.raises(OverflowError, match="64 bits"):
            publisher.publish(b"a", sequence=sequence)

    stream = streams.next_stream()
    publisher.publish(b"b")
    assert bodies(stream, 1) == [b"b"]


def test_a_body_too_large_is_refused_and_the_publisher_goes_on(publisher: PurePublisher, streams: FakeStreams) -> None:
    with pytest.raises(StatusError, match="1001 bytes; at most 1000"):
        publisher.publish(bytes(1_001))

    stream = streams.next_stream()
    publisher.publish(b"b")
    assert bodies(stream, 1) == [b"b"]


def test_mandatory_messages_do_not_share_a_batch_with_others(publisher: PurePublisher, streams: FakeStreams) -> None:
    publisher.publish_many([b"a"], mandatory=True)
    publisher.publish_many([b"b"])

    stream = streams.next_stream()
    bodies(stream, 2)
    requests = [messaging_pb2.PublishRequest.FromString(payload).batch for payload in stream.sent(3)[1:]]
    assert [(batch.mandatory, len(batch.messages)) for batch in requests] == [(True, 1), (False, 1)]


def test_a_publisher_that_is_dropped_ends_and_opens_no_stream_again(streams: FakeStreams) -> None:
    """Its thread held it: it reconnected until the end of the process, also on a channel that was closed."""
    port = PurePublisher(streams, PublisherOptions("/", durability=1), Backoff(lambda: 0.0, first=0.0))
    publishing = Publishing(port, StatusError, WAIT_MS)
    stream = streams.next_stream()

    del publishing

    eventually(lambda: stream.is_cancelled, True)
    eventually(lambda: port.wake_fd, -1)
    with pytest.raises(StatusError, match="closed"):
        port.publish(b"x")


def test_the_end_wakes_a_loop_also_behind_outcomes_that_came_with_it(
    publisher: PurePublisher, streams: FakeStreams
) -> None:
    """A message behind them waited for the time limit of its confirm."""
    stream = streams.next_stream()
    publisher.publish_many([b"1", b"2"])
    bodies(stream, 2)
    confirm(stream, 1, 1)
    stream.fail(3, "no")
    eventually(lambda: publisher.is_ended, True)

    assert publisher.take() == [(1, 1, 0, "")]

    assert select.select([publisher.wake_fd], [], [], 0)[0] == [publisher.wake_fd]
    with pytest.raises(StatusError, match="no"):
        publisher.take()
