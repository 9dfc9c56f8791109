"""The reader over grpcio, with streams whose other end is the test."""

from collections.abc import Iterator
from select import POLLIN, poll

import pytest

from penstock.client.backoff import Backoff
from penstock.client.pure_reader import PureReader
from penstock.client.reading import ReadingLimits, StreamReader
from penstock.client.stream_messages import StreamMessage
from penstock.client.transport import ReaderOptions, StatusError
from penstock.v1 import streams_pb2 as wire
from support.fake_streams import FakeStream, FakeStreams
from support.waiting import eventually

UNAVAILABLE, NOT_FOUND, CANCELLED, FAILED_PRECONDITION = 14, 5, 1, 9
START = wire.Start(place=wire.PLACE_FIRST)


@pytest.fixture
def streams() -> FakeStreams:
    return FakeStreams()


def make(streams: FakeStreams, **options: object) -> PureReader:
    wanted = ReaderOptions("/", "events", START.SerializeToString(), credit=4, **options)  # type: ignore[arg-type]
    return PureReader(streams, wanted, Backoff(lambda: 0.0, first=0.0))


@pytest.fixture
def reader(streams: FakeStreams) -> Iterator[PureReader]:
    reader = make(streams)
    yield reader
    reader.close()


def opened(stream: FakeStream, begin: int = 1, next_: int = 1) -> None:
    stream.say(wire.ReadResponse(opened=wire.ReadOpened(first=1, begin=begin, next=next_)))


def deliver(stream: FakeStream, *offsets: int) -> None:
    response = wire.ReadResponse()
    for offset in offsets:
        response.deliveries.deliveries.add(sequence=offset, body=str(offset).encode())
    stream.say(response)


def taken(reader: PureReader, count: int) -> list[int]:
    found: list[StreamMessage] = []
    watched = poll()
    watched.register(reader.wake_fd, POLLIN)
    while len(found) < count:
        assert watched.poll(5_000), f"only {len(found)} arrived"
        found += reader.take(2)
    return [message.offset for message in found]


def test_a_reader_comes_back_when_the_broker_has_let_go_of_its_old_connection(
    reader: PureReader, streams: FakeStreams
) -> None:
    stream = streams.next_stream()
    opened(stream)
    deliver(stream, 1)
    assert taken(reader, 1) == [1]
    stream.fail(UNAVAILABLE, "connection reset")

    for _ in range(3):
        streams.next_stream().fail(FAILED_PRECONDITION, "another reader of the group reads the partition")
    stream = streams.next_stream()
    opened(stream, begin=2)
    deliver(stream, 2)

    assert taken(reader, 1) == [2]


def test_a_reader_that_never_was_open_is_told_of_a_refusal_at_once(reader: PureReader, streams: FakeStreams) -> None:
    streams.next_stream().fail(FAILED_PRECONDITION, "another reader of the group reads the partition")

    with pytest.raises(StatusError, match="another reader"):
        taken(reader, 1)


def requests(stream: FakeStream, count: int) -> list[wire.ReadRequest]:
    return [wire.ReadRequest.FromString(payload) for payload in stream.sent(count)]


def opening(stream: FakeStream) -> wire.ReadOpen:
    return requests(stream, 1)[0].open


def test_a_stream_opens_with_what_was_asked(streams: FakeStreams) -> None:
    reader = make(streams, end=9, group="billing", single_active=True)

    found = opening(streams.next_stream())
    reader.close()

    assert (found.vhost, found.partition, found.credit, found.end) == ("/", "events", 4, 9)
    assert (found.group, found.single_active, found.start.place) == ("billing", True, wire.PLACE_FIRST)


def test_messages_are_taken_in_order_and_no_more_than_asked(reader: PureReader, streams: FakeStreams) -> None:
    stream = streams.next_stream()
    opened(stream)

    deliver(stream, 1, 2, 5)
    deliver(stream, 6)

    assert taken(reader, 4) == [1, 2, 5, 6]
    assert reader.take(10) == []


def test_credit_goes_back_when_half_of_it_was_taken(reader: PureReader, streams: FakeStreams) -> None:
    stream = streams.next_stream()
    opened(stream)
    for offset in range(1, 5):
        deliver(stream, offset)

    assert taken(reader, 1) == [1]
    assert len(stream.sent(1)) == 1
    assert taken(reader, 1) == [2]
    assert requests(stream, 2)[1].credit.responses == 2
    assert taken(reader, 2) == [3, 4]
    assert requests(stream, 3)[2].credit.responses == 2


def test_a_reader_goes_on_behind_the_last_message_without_gap_or_repeat(
    reader: PureReader, streams: FakeStreams
) -> None:
    first = streams.next_stream()
    opened(first)
    deliver(first, 1, 2, 7)
    first.fail(UNAVAILABLE, "connection reset")

    second = streams.next_stream()
    assert opening(second).start.offset == 8
    opened(second, begin=2)
    deliver(second, 2, 7, 8)

    assert taken(reader, 4) == [1, 2, 7, 8]


def test_a_reader_of_the_next_message_misses_nothing_while_the_connection_is_broken(
    reader: PureReader, streams: FakeStreams
) -> None:
    first = streams.next_stream()
    opened(first, begin=100)
    first.fail(UNAVAILABLE, "connection reset")

    assert opening(streams.next_stream()).start.offset == 100


def test_a_connection_that_never_came_is_tried_with_the_same_start(reader: PureReader, streams: FakeStreams) -> None:
    streams.next_stream().fail(UNAVAILABLE, "nobody there")

    assert opening(streams.next_stream()).start.place == wire.PLACE_FIRST


def test_what_was_not_taken_counts_against_the_credit_of_a_new_stream(reader: PureReader, streams: FakeStreams) -> None:
    first = streams.next_stream()
    opened(first)
    deliver(first, 1)
    deliver(first, 2)
    deliver(first, 3)
    first.fail(UNAVAILABLE, "connection reset")

    assert opening(streams.next_stream()).credit == 1


def test_a_reader_whose_end_was_reached_is_finished_once_all_was_taken(streams: FakeStreams) -> None:
    reader = make(streams, end=3)
    stream = streams.next_stream()
    opened(stream)
    deliver(stream, 1, 2)
    stream.finish()

    assert not reader.is_finished
    assert taken(reader, 2) == [1, 2]
    eventually(lambda: reader.is_finished, True)
    reader.close()


def test_a_stream_that_ends_quietly_without_an_end_is_opened_again(reader: PureReader, streams: FakeStreams) -> None:
    first = streams.next_stream()
    opened(first)
    first.finish()

    assert opening(streams.next_stream()).start.offset == 1
    assert not reader.is_finished


@pytest.mark.parametrize("how", ["refused", "cancelled"])
def test_a_reader_that_the_broker_ends_says_so_after_what_arrived(
    reader: PureReader, streams: FakeStreams, how: str
) -> None:
    stream = streams.next_stream()
    opened(stream)
    deliver(stream, 1)
    if how == "refused":
        stream.fail(NOT_FOUND, "no such stream")
    else:
        stream.say(wire.ReadResponse(cancelled=wire.ReadCancelled(reason="the stream was deleted")))

    assert taken(reader, 1) == [1]
    with pytest.raises(StatusError) as ended:
        taken(reader, 1)
    assert ended.value.args[0] == (NOT_FOUND if how == "refused" else CANCELLED)


def test_only_the_last_stored_offset_must_be_told(reader: PureReader, streams: FakeStreams) -> None:
    stream = streams.next_stream()
    opened(stream)
    for offset in range(1, 100):
        reader.store(offset)

    eventually(lambda: requests(stream, 2)[-1].stored.offset, 99)
    told = [request.stored.offset for request in requests(stream, 2)[1:]]
    assert told == sorted(told)
    reader.close()
    assert stream.is_cancelled


def test_a_waiting_reader_begins_where_the_group_stands_when_its_turn_comes(streams: FakeStreams) -> None:
    reader = make(streams, group="g", single_active=True)
    stream = streams.next_stream()
    opened(stream, begin=100)
    assert not reader.is_active

    stream.say(wire.ReadResponse(active=wire.Active(active=True, begin=51)))
    deliver(stream, 51)

    assert taken(reader, 1) == [51]
    assert reader.is_active
    stream.fail(UNAVAILABLE, "connection reset")
    assert opening(streams.next_stream()).start.offset == 52
    reader.close()


@pytest.mark.parametrize("name", ["\udcff", 5])
def test_a_group_whose_name_cannot_be_sent_is_refused_at_once(streams: FakeStreams, name: object) -> None:
    with pytest.raises((UnicodeEncodeError, TypeError)):
        make(streams, group=name)


def test_a_reader_that_is_dropped_ends(streams: FakeStreams) -> None:
    """Its thread held it until the end of the process."""
    port = make(streams)
    reader = StreamReader([port], StatusError, ReadingLimits(None, None, False), lambda _partition, _offset: None)
    stream = streams.next_stream()

    del reader

    eventually(lambda: stream.is_cancelled, True)
    eventually(lambda: port.wake_fd, -1)
