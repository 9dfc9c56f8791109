"""Streams over AMQP with pika: where reading begins, offsets, prefetch, filters, and what streams refuse."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

import penstock
from support import Broker
from support.broker import free_ports

SECONDS_MAX = 30
STREAM = {"x-queue-type": "stream"}


@pytest.fixture(scope="module")
def amqp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, int]]:
    port = free_ports(1)[0]
    with Broker(tmp_path_factory.mktemp("amqp") / "data", "--amqp", f"127.0.0.1:{port}") as broker:
        yield broker, port


@pytest.fixture
def channel(amqp: tuple[Broker, int]) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp[1]))
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    if connection.is_open:
        connection.close()


def declare(channel: BlockingChannel, name: str, count: int = 5) -> None:
    channel.queue_declare(name, durable=True, arguments=STREAM)
    for number in range(count):
        channel.basic_publish("", name, b"%d" % number)


def read(
    channel: BlockingChannel, name: str, count: int, *, acks: bool = True, wait: float = SECONDS_MAX, **arguments: Any
) -> list[tuple[int, bytes]]:
    """Consume until so many messages came, or none for some time; return offsets and bodies."""
    channel.basic_qos(prefetch_count=100)
    found: list[tuple[int, bytes]] = []
    settings = {key.replace("_", "-"): value for key, value in arguments.items()}
    for method, properties, body in channel.consume(name, arguments=settings, inactivity_timeout=wait):
        if method is None:
            break
        found.append((properties.headers["x-stream-offset"], body))
        if acks:
            channel.basic_ack(method.delivery_tag)
        if len(found) == count:
            break
    channel.cancel()
    return found


ALL = [(number + 1, b"%d" % number) for number in range(5)]


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        ("first", ALL),
        ("last", ALL[-1:]),
        (3, ALL[2:]),
        (-2, ALL[-2:]),
        ("1h", ALL),
        (datetime(2020, 1, 1, tzinfo=UTC), ALL),
    ],
)
def test_reading_begins_where_the_offset_says(
    channel: BlockingChannel, offset: object, expected: list[tuple[int, bytes]]
) -> None:
    declare(channel, f"s-{offset}")

    assert read(channel, f"s-{offset}", len(expected), x_stream_offset=offset) == expected
    assert read(channel, f"s-{offset}", len(expected), x_stream_offset=offset) == expected, "it was not removed"


def test_without_an_offset_only_later_messages_come(channel: BlockingChannel) -> None:
    declare(channel, "later")
    assert read(channel, "later", 1, wait=0.3) == []
    channel.basic_qos(prefetch_count=10)
    found: list[bytes] = []
    channel.basic_consume("later", lambda *got: found.append(got[3]))

    channel.basic_publish("", "later", b"new")

    end = time.monotonic() + SECONDS_MAX
    while not found and time.monotonic() < end:
        channel.connection.process_data_events(0.05)
    assert found == [b"new"]


def test_no_more_come_than_the_prefetch_until_some_are_settled(channel: BlockingChannel) -> None:
    declare(channel, "few", 10)
    channel.basic_qos(prefetch_count=3)
    tags: list[int] = []
    channel.basic_consume("few", lambda *got: tags.append(got[1].delivery_tag), arguments={"x-stream-offset": "first"})

    def wait(seconds: float = 0.3) -> int:
        channel.connection.process_data_events(seconds)
        channel.connection.process_data_events(seconds)
        return len(tags)

    assert wait() == 3
    channel.basic_ack(tags[0])
    assert wait() == 4
    channel.basic_nack(tags[2], multiple=True, requeue=True)
    assert wait() == 6


def test_stored_headers_and_properties_stay(channel: BlockingChannel) -> None:
    channel.queue_declare("rich", durable=True, arguments=STREAM)
    sent = pika.BasicProperties(content_type="text/plain", headers={"a": 1}, correlation_id="c", priority=3)
    channel.basic_publish("", "rich", b"x", sent)
    channel.basic_qos(prefetch_count=1)

    _, properties, _ = next(
        channel.consume("rich", arguments={"x-stream-offset": "first"}, inactivity_timeout=SECONDS_MAX)
    )

    assert properties.headers == {"a": 1, "x-stream-offset": 1}
    found = (properties.content_type, properties.correlation_id, properties.priority)
    assert found == ("text/plain", "c", 3)


def test_a_filter_lets_messages_with_one_of_its_values_through(channel: BlockingChannel) -> None:
    channel.queue_declare("filtered", durable=True, arguments=STREAM)
    for number, value in enumerate(["red", "green", None, "blue", "red", "green,blue"]):
        headers = {} if value is None else {"x-stream-filter-value": value}
        channel.basic_publish("", "filtered", b"%d" % number, pika.BasicProperties(headers=headers))

    def bodies(count: int, **arguments: Any) -> list[bytes]:
        found = read(channel, "filtered", count, wait=0.5, x_stream_offset="first", **arguments)
        return [body for _, body in found]

    assert bodies(9, x_stream_filter="red") == [b"0", b"4"]
    assert bodies(9, x_stream_filter=["red", "blue"]) == [b"0", b"3", b"4", b"5"]
    assert bodies(9, x_stream_filter="red", x_stream_match_unfiltered=True) == [b"0", b"2", b"4"]
    assert bodies(9) == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_filtered_messages_take_no_credit(channel: BlockingChannel) -> None:
    channel.queue_declare("sparse", durable=True, arguments=STREAM)
    for number in range(3_000):
        headers = {"x-stream-filter-value": "wanted" if number % 1_000 == 999 else "other"}
        channel.basic_publish("", "sparse", b"%d" % number, pika.BasicProperties(headers=headers))
    channel.basic_qos(prefetch_count=2)
    settings = {"x-stream-offset": "first", "x-stream-filter": "wanted"}
    found = []
    for method, _, body in channel.consume("sparse", arguments=settings, inactivity_timeout=SECONDS_MAX):
        found.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(found) == 3:
            break

    assert found == [b"999", b"1999", b"2999"]


@pytest.mark.parametrize(
    ("settings", "code", "text"),
    [
        ({"auto_ack": True}, 540, "automatic acknowledgement not supported by stream queue 'strict' in vhost '/'"),
        ({"prefetch": 0}, 406, "consumer prefetch count is not set for stream queue 'strict' in vhost '/'"),
        ({"global_qos": True}, 540, "queue 'strict' in vhost '/' does not support global qos"),
        ({"exclusive": True}, 406, "exclusive consumers are not supported by stream queue 'strict' in vhost '/'"),
        ({"arguments": {"x-priority": 1}}, 406, "invalid arg 'x-priority'"),
        ({"arguments": {"x-stream-offset": "soon"}}, 406, "invalid arg 'x-stream-offset'"),
        ({"arguments": {"x-stream-filter": []}}, 406, "invalid arg 'x-stream-filter'"),
    ],
)
def test_what_a_stream_does_not_have_is_refused(
    channel: BlockingChannel, settings: dict[str, Any], code: int, text: str
) -> None:
    declare(channel, "strict", 1)
    prefetch, global_qos = settings.pop("prefetch", 10), settings.pop("global_qos", False)
    channel.basic_qos(prefetch_count=prefetch, global_qos=global_qos)
    if global_qos:
        channel.basic_qos(prefetch_count=10)

    expected = ConnectionClosedByBroker if code == 540 else ChannelClosedByBroker
    with pytest.raises(expected) as refused:
        channel.basic_consume("strict", lambda *_: None, **settings)

    assert refused.value.reply_code == code
    assert text in refused.value.reply_text


def test_messages_of_a_stream_cannot_be_got_singly(channel: BlockingChannel) -> None:
    declare(channel, "single", 1)
    with pytest.raises(ConnectionClosedByBroker) as refused:
        channel.basic_get("single")

    assert refused.value.reply_code == 540
    assert refused.value.reply_text.endswith("basic.get not supported by stream queues queue 'single' in vhost '/'")


def test_a_deleted_stream_cancels_its_consumers(amqp: tuple[Broker, int], channel: BlockingChannel) -> None:
    declare(channel, "gone", 1)
    channel.basic_qos(prefetch_count=10)
    cancelled: list[str] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    channel.basic_consume("gone", lambda *_: None, consumer_tag="reader")
    with penstock.connect(amqp[0].uri()) as connection:
        (listed,) = (each for each in connection.admin.list_consumers() if each.queue == "gone")
        assert (listed.consumer_tag, listed.prefetch) == ("reader", 10)
        connection.delete_queue("gone")

    end = time.monotonic() + SECONDS_MAX
    while not cancelled and time.monotonic() < end:
        channel.connection.process_data_events(0.05)
    assert cancelled == ["reader"]
