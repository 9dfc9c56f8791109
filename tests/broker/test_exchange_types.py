"""Exchanges that choose one binding for each message or delay messages, over AMQP, gRPC and the command line."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, UnroutableError

import penstock
from support import Broker
from support.broker import free_ports, penstock_command

SECONDS_MAX = 30
MESSAGES = 400
QUEUES = ("q1", "q2", "q3", "q4")


@pytest.fixture(scope="module")
def amqp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, int]]:
    """Return a broker and the port of its AMQP listener."""
    port = free_ports(1)[0]
    with Broker(tmp_path_factory.mktemp("exchanges") / "data", "--amqp", f"127.0.0.1:{port}") as broker:
        yield broker, port


def connected(port: int) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, socket_timeout=SECONDS_MAX))


@pytest.fixture
def channel(amqp: tuple[Broker, int]) -> Iterator[BlockingChannel]:
    """Return a channel that confirms, and the empty queues q1 to q4."""
    with connected(amqp[1]) as connection:
        opened = connection.channel()
        opened.confirm_delivery()
        for queue in QUEUES:
            opened.queue_declare(queue, durable=True)
        opened.exchange_declare("later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "topic"})
        opened.exchange_declare("x", "fanout", durable=True)
        yield opened
    with connected(amqp[1]) as connection:
        closing = connection.channel()
        for queue in QUEUES:
            closing.queue_delete(queue)
        closing.exchange_delete("later")
        closing.exchange_delete("x")


@pytest.fixture
def admin(amqp: tuple[Broker, int]) -> Iterator[penstock.Connection]:
    with penstock.connect(amqp[0].uri()) as connection:
        yield connection


def declare(channel: BlockingChannel, kind: str, weights: dict[str, str], **arguments: Any) -> None:
    """Declare the exchange x anew, with bindings whose keys are these."""
    channel.exchange_delete("x")
    named = {name.replace("_", "-"): value for name, value in arguments.items()}
    channel.exchange_declare("x", kind, durable=True, arguments=named)
    for queue, weight in weights.items():
        channel.queue_bind(queue, "x", weight)


def bodies(channel: BlockingChannel, queue: str) -> list[bytes]:
    found: list[bytes] = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return found
        found.append(body)


def delivered(channel: BlockingChannel) -> dict[str, list[bytes]]:
    return {queue: bodies(channel, queue) for queue in QUEUES}


def users(found: dict[str, list[bytes]]) -> list[set[bytes]]:
    """Return the different bodies of each queue."""
    return [set(each) for each in found.values()]


@pytest.mark.parametrize("algorithm", ["ring", "jump"])
def test_a_consistent_hash_sends_one_content_to_one_queue_and_heeds_weights(
    channel: BlockingChannel, algorithm: str
) -> None:
    weights = {"q1": "1", "q2": "1", "q3": "4"}
    declare(channel, "x-consistent-hash", weights, x_algorithm=algorithm)
    for number in range(MESSAGES):
        channel.basic_publish("x", f"user {number % 200}", b"%d" % (number % 200), mandatory=True)

    found = delivered(channel)

    counts = [len(found[queue]) for queue in weights]
    assert sum(counts) == MESSAGES
    assert sum(len(each) for each in users(found)) == 200, "each content has one queue"
    assert counts[2] > counts[0] + counts[1] > 0


@pytest.mark.parametrize(
    ("arguments", "properties"),
    [
        ({"hash_header": "user"}, lambda user: pika.BasicProperties(headers={"user": user})),
        ({"x_hash_on": "user"}, lambda user: pika.BasicProperties(headers={"user": int(user)})),
        ({"hash_property": "message_id"}, lambda user: pika.BasicProperties(message_id=user)),
        ({"hash_property": "correlation_id"}, lambda user: pika.BasicProperties(correlation_id=user)),
        ({"hash_property": "timestamp"}, lambda user: pika.BasicProperties(timestamp=int(user))),
    ],
)
def test_a_header_or_a_property_is_hashed_instead_of_the_routing_key(
    channel: BlockingChannel, arguments: dict[str, str], properties: Any
) -> None:
    declare(channel, "x-consistent-hash", dict.fromkeys(QUEUES, "1"), **arguments)
    for number in range(MESSAGES):
        channel.basic_publish("x", "the same", b"%d" % (number % 100), properties(str(number % 100)))

    found = users(delivered(channel))

    assert all(found), "each queue has some"
    assert sum(len(each) for each in found) == 100, "each content has one queue"


def test_a_modulus_hash_spreads_routing_keys_and_a_random_exchange_messages(channel: BlockingChannel) -> None:
    declare(channel, "x-modulus-hash", dict.fromkeys(QUEUES, "ignored"))
    for number in range(MESSAGES):
        channel.basic_publish("x", f"key {number % 100}", b"%d" % (number % 100))
    found = users(delivered(channel))
    assert all(found)
    assert sum(len(each) for each in found) == 100

    for kind in ("x-random", "x-local-random"):
        declare(channel, kind, dict.fromkeys(QUEUES, ""))
        for number in range(MESSAGES):
            channel.basic_publish("x", "the same", b"%d" % number)
        counts = [len(each) for each in delivered(channel).values()]
        assert sum(counts) == MESSAGES
        assert min(counts) > MESSAGES / 4 / 2


def test_random_exchanges_spread_a_batch_that_is_stored_together(
    channel: BlockingChannel, admin: penstock.Connection
) -> None:
    declare(channel, "x-random", dict.fromkeys(QUEUES, ""))
    admin.publish_many([b"%d" % number for number in range(MESSAGES)], exchange="x")

    assert min(len(each) for each in delivered(channel).values()) > MESSAGES / 4 / 2


def test_without_bindings_the_alternate_exchange_gets_the_messages(channel: BlockingChannel) -> None:
    for kind in ("x-consistent-hash", "x-random"):
        declare(channel, kind, {}, alternate_exchange="amq.fanout")
        channel.queue_bind("q1", "amq.fanout")
        channel.basic_publish("x", "key", b"spare", mandatory=True)
        channel.queue_unbind("q1", "amq.fanout")
        with pytest.raises(UnroutableError):
            channel.basic_publish("x", "key", b"lost", mandatory=True)
    assert bodies(channel, "q1") == [b"spare", b"spare"]


@pytest.mark.parametrize(
    ("kind", "arguments", "text"),
    [
        ("x-consistent-hash", {"hash-header": "a", "hash-property": "message_id"}, "mutually exclusive"),
        ("x-consistent-hash", {"hash-property": "app_id"}, "'hash-property' whose value 'app_id' is not valid"),
        ("x-delayed-message", {}, "'x-delayed-type', which must be an existing exchange type"),
    ],
)
def test_other_declarations_are_refused(
    channel: BlockingChannel, kind: str, arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(ChannelClosedByBroker, match=text) as raised:
        channel.exchange_declare("refused", kind, arguments=arguments)
    assert raised.value.reply_code == 406


def test_a_weight_that_is_no_number_is_refused_and_a_great_one_costs_nothing(channel: BlockingChannel) -> None:
    declare(channel, "x-consistent-hash", {"q1": "1000000000", "q2": "1000000000"})
    for number in range(100):
        channel.basic_publish("x", f"{number}", b"x")
    assert Counter(len(each) > 20 for each in delivered(channel).values()) == {True: 2, False: 2}

    with pytest.raises(ChannelClosedByBroker, match="must be an integer"):
        channel.queue_bind("q3", "x", "heavy")


def test_types_bindings_and_delays_survive_a_restart_and_contents_go_the_same_way(tmp_path: Path) -> None:
    def publish_all(connection: penstock.Connection) -> None:
        for number in range(100):
            connection.publish(b"%d" % number, exchange="x", headers={"user": number})

    with Broker(tmp_path / "data") as broker:
        with penstock.connect(broker.uri()) as connection:
            hashing = {"hash-header": "user", "x-algorithm": "jump"}
            connection.declare_exchange("x", "x-consistent-hash", arguments=hashing)
            connection.declare_exchange("later", "x-delayed-message", arguments={"x-delayed-type": "topic"})
            for queue in QUEUES:
                connection.declare_queue(queue)
                connection.bind_queue(queue, "x", "2")
            connection.declare_queue("delayed")
            connection.bind_queue("delayed", "later", "order.*")
            publish_all(connection)
            for body, delay in ((b"soon", 1), (b"late", 3_600_000)):
                connection.publish(body, exchange="later", routing_key="order.new", headers={"x-delay": delay})
        broker.kill()
        broker.start()
        with penstock.connect(broker.uri()) as connection:
            publish_all(connection)
            found = [take_all(connection, queue) for queue in QUEUES]
            assert all(found)
            assert all(set(Counter(each).values()) == {2} for each in found)
            assert sum(len(each) for each in found) == 200
            assert take_all(connection, "delayed") == [b"soon"]
            assert connection.admin.get_queue("delayed").ready_count == 1


def take_all(connection: penstock.Connection, queue: str) -> list[bytes]:
    found = []
    while (message := connection.get(queue, auto_ack=True)) is not None:
        found.append(message.body)
    return found


def test_a_message_is_delayed_by_its_header(channel: BlockingChannel) -> None:
    channel.queue_bind("q1", "later", "order.#")
    for number, delay in enumerate([600, 200, -5, 0, "soon", None, 400]):
        headers = None if delay is None else {"x-delay": delay}
        channel.basic_publish("later", "order.new", b"%d" % number, pika.BasicProperties(headers=headers))
    assert bodies(channel, "q1") == [b"2", b"3", b"4", b"5"], "what has no positive delay is not delayed"

    found = [(body, properties.headers) for _, properties, body in consumed(channel, "q1", 3)]

    assert found == [(b"1", {"x-delay": -200}), (b"6", {"x-delay": -400}), (b"0", {"x-delay": -600})]
    with pytest.raises(UnroutableError):
        channel.basic_publish("later", "other", b"lost", pika.BasicProperties(headers={"x-delay": 10}), mandatory=True)


def consumed(channel: BlockingChannel, queue: str, count: int) -> list[tuple[Any, Any, bytes]]:
    messages: list[tuple[Any, Any, bytes]] = []
    for method, properties, body in channel.consume(queue, auto_ack=True, inactivity_timeout=SECONDS_MAX):
        assert method is not None, f"{len(messages)} of {count} came"
        messages.append((method, properties, body))
        if len(messages) == count:
            break
    channel.cancel()
    return messages


def test_other_exchanges_delay_nothing_until_an_argument_or_a_policy_says_so(
    channel: BlockingChannel, admin: penstock.Connection
) -> None:
    late = pika.BasicProperties(headers={"x-delay": 3_600_000, "BCC": ["q2"]})
    declare(channel, "fanout", {"q1": ""})
    channel.basic_publish("x", "", b"at once", late)
    assert bodies(channel, "q1") == [b"at once"]

    admin.admin.set_policy("delays", "^x$", {"delayed-message": True}, apply_to="exchanges")
    channel.basic_publish("x", "", b"late", late)
    assert (bodies(channel, "q1"), admin.admin.get_queue("q1").ready_count) == ([], 1)
    admin.admin.delete_policy("delays")
    channel.basic_publish("x", "", b"at once again", late)
    assert bodies(channel, "q1") == [b"at once again"]

    declare(channel, "fanout", {"q3": ""}, x_delayed_exchange=True)
    channel.basic_publish("x", "", b"late", late)
    assert (bodies(channel, "q3"), admin.admin.get_queue("q3").ready_count) == ([], 1)


def test_a_message_that_comes_through_a_binding_is_delayed_and_keeps_its_expiration_until_it_is_due(
    channel: BlockingChannel, admin: penstock.Connection
) -> None:
    declare(channel, "fanout", {})
    channel.exchange_bind("later", "x")
    channel.queue_bind("q4", "later", "#")

    channel.basic_publish("x", "k", b"late", pika.BasicProperties(headers={"x-delay": 300}, expiration="60000"))

    assert (bodies(channel, "q4"), admin.admin.get_queue("q4").ready_count) == ([], 1)
    assert [body for _, _, body in consumed(channel, "q4", 1)] == [b"late"]
    channel.queue_unbind("q4", "later", "#")


def test_the_command_line_declares_them(amqp: tuple[Broker, int], channel: BlockingChannel) -> None:
    def run(*arguments: str) -> str:
        command = [penstock_command(), *arguments, "--uri", amqp[0].uri()]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    run("exchange", "declare", "cli", "--type", "x-consistent-hash", "--argument", "hash-header=user")
    run("binding", "add", "cli", "q1", "--routing-key", "7")

    listed = json.loads(run("exchange", "list", "--output", "json"))
    assert [one["type"] for one in listed if one["name"] == "cli"] == ["x-consistent-hash"]
    channel.exchange_delete("cli")


def test_definitions_of_other_brokers_keep_them(amqp: tuple[Broker, int], admin: penstock.Connection) -> None:
    exchanges: list[dict[str, Any]] = [
        {"name": "theirs", "type": "x-consistent-hash", "arguments": {"x-hash-on": "user", "x-algorithm": "jump"}},
        {"name": "late", "type": "x-delayed-message", "arguments": {"x-delayed-type": "direct"}},
        {"name": "slow", "type": "topic", "arguments": {"x-delayed-exchange": True}},
        {"name": "any", "type": "x-random", "arguments": {}},
        {"name": "mod", "type": "x-modulus-hash", "arguments": {}},
    ]
    queue = {"name": "mine", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    binding = {"source": "theirs", "vhost": "/", "destination": "mine", "destination_type": "queue", "routing_key": "3"}
    document = {
        "exchanges": [
            {"vhost": "/", "durable": True, "auto_delete": False, "internal": False, **one} for one in exchanges
        ],
        "queues": [queue],
        "bindings": [{**binding, "arguments": {}}],
    }

    admin.admin.import_definitions(json.dumps(document).encode())

    found = {one.name: (one.type, dict(one.arguments)) for one in admin.admin.list_exchanges()}
    assert all(found[one["name"]] == (one["type"], one["arguments"]) for one in exchanges)
    admin.publish(b"to the only one", exchange="theirs", mandatory=True)
    assert take_all(admin, "mine") == [b"to the only one"]
