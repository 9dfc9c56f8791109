"""Which consumers get messages, and for how long they may keep them: single active ones, priorities, timeouts."""

import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

import penstock
from penstock.client.records import Consumer as OpenConsumer
from support import Broker
from support.broker import free_ports, penstock_command

SECONDS_MAX = 30


@pytest.fixture(scope="module")
def amqp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, int]]:
    port = free_ports(1)[0]
    with Broker(tmp_path_factory.mktemp("amqp") / "data", "--amqp", f"127.0.0.1:{port}") as broker:
        yield broker, port


@pytest.fixture
def connection(amqp: tuple[Broker, int]) -> Iterator[penstock.Connection]:
    with penstock.connect(amqp[0].uri()) as connection:
        yield connection


@pytest.fixture
def channel(amqp: tuple[Broker, int]) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp[1]))
    yield connection.channel()
    if connection.is_open:
        connection.close()


class Consumer:
    """A consumer of pika, with the bodies of what it got."""

    def __init__(self, channel: BlockingChannel, queue: str, **settings: Any) -> None:
        self.channel = channel
        self.bodies: list[bytes] = []
        self.tags: list[int] = []
        self.tag = channel.basic_consume(queue, self._got, **settings)

    def _got(self, _: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
        self.bodies.append(body)
        self.tags.append(method.delivery_tag)


def until(channel: BlockingChannel, is_done: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS_MAX
    while not is_done():
        assert time.monotonic() < end, "it did not happen"
        channel.connection.process_data_events(0.05)


def active(connection: penstock.Connection, queue: str) -> dict[str, bool]:
    return {each.consumer_tag: each.active for each in connection.admin.list_consumers() if each.queue == queue}


def opened(connection: penstock.Connection, queue: str, count: int) -> list[OpenConsumer]:
    """Return the consumers of a queue once there are so many: over gRPC they open in the background."""
    end = time.monotonic() + SECONDS_MAX
    while True:
        found = [each for each in connection.admin.list_consumers() if each.queue == queue]
        if len(found) == count:
            return found
        assert time.monotonic() < end, f"{len(found)} are open"


def test_one_consumer_is_active_and_the_next_takes_over_when_it_leaves(
    channel: BlockingChannel, connection: penstock.Connection
) -> None:
    channel.queue_declare("sac", arguments={"x-single-active-consumer": True})
    channel.basic_qos(prefetch_count=10)
    first, second, third = (Consumer(channel, "sac", consumer_tag=tag) for tag in ("first", "second", "third"))
    assert active(connection, "sac") == {"first": True, "second": False, "third": False}

    for number in range(4):
        connection.publish(b"%d" % number, routing_key="sac")
    until(channel, lambda: len(first.bodies) == 4)
    channel.basic_ack(first.tags[1], multiple=True)
    channel.basic_cancel("first")
    assert active(connection, "sac")["second"]
    connection.publish(b"4", routing_key="sac")
    until(channel, lambda: second.bodies == [b"4"])
    channel.basic_nack(first.tags[3], requeue=True)
    until(channel, lambda: second.bodies == [b"4", b"3"])

    assert third.bodies == []


def test_a_new_active_consumer_gets_what_the_last_one_did_not_settle(
    channel: BlockingChannel, connection: penstock.Connection
) -> None:
    connection.declare_queue("over", arguments={"x-single-active-consumer": True})
    for number in range(6):
        connection.publish(b"%d" % number, routing_key="over")
    one = connection.consume("over", prefetch=3, consumer_tag="grpc")
    messages = iter(one)
    assert [next(messages).body for _ in range(3)] == [b"0", b"1", b"2"]
    channel.basic_qos(prefetch_count=10)
    other = Consumer(channel, "over", consumer_tag="amqp")
    assert active(connection, "over") == {"grpc": True, "amqp": False}

    one.close()

    until(channel, lambda: other.bodies == [b"0", b"1", b"2", b"3", b"4", b"5"])
    assert active(connection, "over") == {"amqp": True}


def test_the_highest_priority_stands_by_first(channel: BlockingChannel, connection: penstock.Connection) -> None:
    channel.queue_declare("ranked", arguments={"x-single-active-consumer": True})
    for tag, priority in (("a", 0), ("b", 1), ("c", 5), ("d", 5)):
        Consumer(channel, "ranked", consumer_tag=tag, arguments={"x-priority": priority})
    order = []
    while consumers := active(connection, "ranked"):
        (tag,) = (tag for tag, is_active in consumers.items() if is_active)
        order.append(tag)
        channel.basic_cancel(tag)

    assert order == ["a", "c", "d", "b"]


def test_a_higher_priority_gets_messages_while_it_has_credit(
    channel: BlockingChannel, connection: penstock.Connection
) -> None:
    channel.queue_declare("jobs")
    low = Consumer(channel, "jobs", consumer_tag="low")
    channel.basic_qos(prefetch_count=3)
    high = Consumer(channel, "jobs", consumer_tag="high", arguments={"x-priority": 10})
    found = {each.consumer_tag: each.priority for each in connection.admin.list_consumers() if each.queue == "jobs"}
    assert found == {"low": 0, "high": 10}

    for number in range(5):
        connection.publish(b"%d" % number, routing_key="jobs")
    until(channel, lambda: len(low.bodies) + len(high.bodies) == 5)

    assert (high.bodies, low.bodies) == ([b"0", b"1", b"2"], [b"3", b"4"])
    channel.basic_ack(high.tags[0])
    channel.queue_declare("jobs", passive=True)  # its answer comes after the ack
    connection.publish(b"5", routing_key="jobs")
    until(channel, lambda: high.bodies[3:] == [b"5"])
    channel.basic_cancel("high")
    connection.publish(b"6", routing_key="jobs")
    until(channel, lambda: low.bodies[2:] == [b"6"])


def test_a_blocked_channel_does_not_keep_messages_from_lower_priorities(
    amqp: tuple[Broker, int], channel: BlockingChannel, connection: penstock.Connection
) -> None:
    channel.queue_declare("shared")
    other = channel.connection.channel()
    channel.basic_qos(prefetch_count=2, global_qos=True)
    high = Consumer(channel, "shared", arguments={"x-priority": 1})
    low = Consumer(other, "shared")

    for number in range(4):
        connection.publish(b"%d" % number, routing_key="shared")

    until(channel, lambda: (high.bodies, low.bodies) == ([b"0", b"1"], [b"2", b"3"]))


def test_priorities_count_over_grpc_too(connection: penstock.Connection) -> None:
    connection.declare_queue("calls")
    low = connection.consume("calls", prefetch=10, idle_timeout=0.2)
    high = connection.consume("calls", prefetch=10, priority=3)
    assert sorted(each.priority for each in opened(connection, "calls", 2)) == [0, 3]

    for number in range(3):
        connection.publish(b"%d" % number, routing_key="calls")
    messages = iter(high)

    assert [next(messages).body for _ in range(3)] == [b"0", b"1", b"2"]
    assert list(low) == []
    with pytest.raises(ValueError, match="32 bits"):
        connection.consume("calls", priority=2**31)


def test_a_priority_of_a_wrong_type_closes_the_channel(channel: BlockingChannel) -> None:
    channel.queue_declare("typed")
    with pytest.raises(ChannelClosedByBroker, match="x-priority"):
        channel.basic_consume("typed", lambda *_: None, arguments={"x-priority": "high"})


def closed_for_timeout(channel: BlockingChannel, limit_ms: int) -> None:
    channel.connection.call_later(SECONDS_MAX, channel.stop_consuming)
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.start_consuming()
    assert closed.value.reply_code == 406
    assert closed.value.reply_text == (
        f"PRECONDITION_FAILED - delivery acknowledgement on channel {channel.channel_number} timed out. Timeout value "
        f"used: {limit_ms} ms. This timeout value can be configured, see consumers doc guide to learn more"
    )


@pytest.mark.parametrize("place", ["queue", "policy", "consumer"])
def test_a_message_that_is_kept_for_too_long_closes_the_channel(
    channel: BlockingChannel, connection: penstock.Connection, place: str
) -> None:
    name, arguments = f"slow-{place}", {"x-consumer-timeout": 500}
    channel.queue_declare(name, arguments=arguments if place == "queue" else {})
    if place == "policy":
        connection.admin.set_policy("slow", "^slow-policy$", {"consumer-timeout": 500})
    for body in (b"a", b"b"):
        connection.publish(body, routing_key=name)
    Consumer(channel, name, arguments=arguments if place == "consumer" else {})

    closed_for_timeout(channel, 500)

    assert connection.admin.get_queue(name).ready_count == 2
    message = connection.get(name, auto_ack=True)
    assert message is not None
    assert (message.body, message.redelivered) == (b"a", True)
    assert channel.connection.is_open
    assert channel.connection.channel().is_open


@pytest.mark.parametrize("before_ms", [None, 86_400_000])
def test_a_policy_that_shortens_the_time_counts_for_messages_that_are_out(
    channel: BlockingChannel, connection: penstock.Connection, before_ms: int | None
) -> None:
    name = f"shortened-{before_ms}"
    if before_ms is not None:
        connection.admin.set_policy(name, f"^{name}$", {"consumer-timeout": before_ms})
    channel.queue_declare(name)
    connection.publish(b"a", routing_key=name)
    consumer = Consumer(channel, name)
    until(channel, lambda: consumer.bodies == [b"a"])

    connection.admin.set_policy(name, f"^{name}$", {"consumer-timeout": 300})

    closed_for_timeout(channel, 300)


def test_a_shorter_time_counts_for_messages_of_a_call_and_of_a_cancelled_consumer(
    channel: BlockingChannel, connection: penstock.Connection
) -> None:
    for name in ("called", "cancelled"):
        channel.queue_declare(name, arguments={"x-consumer-timeout": 86_400_000})
        connection.publish(b"a", routing_key=name)
    messages = iter(connection.consume("called"))
    assert next(messages).body == b"a"
    consumer = Consumer(channel, "cancelled")
    until(channel, lambda: consumer.bodies == [b"a"])
    channel._impl.basic_cancel(consumer.tag)  # the blocking form returns what was not handled yet
    until(channel, lambda: active(connection, "cancelled") == {})

    connection.admin.set_policy("shorter", "^ca", {"consumer-timeout": 300})

    with pytest.raises(penstock.CancelledError, match="not settled within 300 ms"):
        next(messages)
    until(channel, lambda: channel.is_closed)


def test_messages_that_are_settled_in_time_close_nothing(
    channel: BlockingChannel, connection: penstock.Connection
) -> None:
    channel.queue_declare("timely", arguments={"x-consumer-timeout": 4_000})
    consumer = Consumer(channel, "timely")
    end = time.monotonic() + 5
    count = 0
    while time.monotonic() < end:
        connection.publish(b"%d" % count, routing_key="timely")
        count += 1
        until(channel, lambda count=count: len(consumer.bodies) == count)  # type: ignore[misc]
        channel.basic_ack(consumer.tags[-1])

    assert channel.is_open


def test_a_call_ends_when_a_message_is_kept_for_too_long(connection: penstock.Connection) -> None:
    connection.declare_queue("held")
    connection.publish(b"a", routing_key="held")
    messages = iter(connection.consume("held", consumer_timeout_ms=300))
    assert next(messages).body == b"a"

    with pytest.raises(penstock.CancelledError, match="not settled within 300 ms"):
        next(messages)
    message = connection.get("held", auto_ack=True)
    assert message is not None
    assert message.redelivered


def test_the_commands_show_who_is_active(amqp: tuple[Broker, int], connection: penstock.Connection) -> None:
    connection.declare_queue("seen", arguments={"x-single-active-consumer": True})
    with connection.consume("seen", consumer_tag="one"), connection.consume("seen", consumer_tag="two", priority=2):
        first, second = opened(connection, "seen", 2)
        assert first.active is not second.active
        command = [penstock_command(), "consumer", "list", "--uri", amqp[0].uri()]
        listed = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True).stdout
    rows = [line.split() for line in listed.splitlines() if line.startswith("seen")]

    assert {row[1]: row[-1] for row in rows} == {"one": "0", "two": "2"}
    assert sorted(row[-2] for row in rows) == ["no", "yes"]
