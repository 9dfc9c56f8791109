"""The page "Coming from RabbitMQ", followed as written: its commands move a queue that is in use, by RabbitMQ's shovel.

A publisher and a consumer go on meanwhile, first the consumer and then the publisher changes to the new broker, and the
new broker is killed once in between. Every confirmed message is consumed. It runs where Debian's rabbitmq-server is
installed.
"""

import json
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

import penstock
from bench.rabbitmq import RabbitMq, is_installed
from support import Broker
from support.broker import free_ports, penstock_command
from support.waiting import eventually

PAGE = (Path(__file__).parents[2] / "docs" / "from-rabbitmq.md").read_text()
STEPS = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
ADDRESS = "penstock.example.com:5672"
BEFORE = 2_000
"""Messages that wait in the old queue."""
ARGUMENTS = {"x-max-priority": 5, "x-dead-letter-exchange": "lost", "x-queue-mode": "lazy"}

pytestmark = pytest.mark.skipif(not is_installed(), reason="Debian's rabbitmq-server is not installed")


@pytest.fixture(scope="module")
def old() -> Iterator[RabbitMq]:
    broker = RabbitMq()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def amqp_port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory, amqp_port: int) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("moving") / "data", "--amqp", f"127.0.0.1:{amqp_port}") as broker:
        yield broker


class Client:
    """A publisher or a consumer in a thread. It connects again after an error, also to another broker."""

    def __init__(self, port: int, turn: Callable[[BlockingChannel, "Client"], None]) -> None:
        self._port = port
        self._turn = turn
        self._is_over = threading.Event()
        self._has_moved = threading.Event()
        self.bodies: list[bytes] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def move(self, port: int) -> None:
        self._port = port
        self._has_moved.set()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    @property
    def may_go_on(self) -> bool:
        return not self._is_over.is_set() and not self._has_moved.is_set()

    def _run(self) -> None:
        while not self._is_over.is_set():
            self._has_moved.clear()
            try:
                with pika.BlockingConnection(parameters(self._port)) as connection:
                    self._turn(connection.channel(), self)
            except (AMQPError, OSError):
                self._is_over.wait(0.05)


def publishing(channel: BlockingChannel, client: Client) -> None:
    """Publish numbers. A message without a confirm is sent again, so none of them is missing."""
    channel.confirm_delivery()
    while client.may_go_on:
        body = b"new-%d" % len(client.bodies)
        channel.basic_publish("shop", "order", body, mandatory=True)
        client.bodies.append(body)
        channel.connection.sleep(0.001)


def consuming(channel: BlockingChannel, client: Client) -> None:
    channel.basic_qos(prefetch_count=50)
    for method, _, body in channel.consume("orders", inactivity_timeout=0.05):
        if method is not None:
            client.bodies.append(body)
            channel.basic_ack(method.delivery_tag)
        if not client.may_go_on:
            return


def parameters(port: int) -> pika.ConnectionParameters:
    return pika.ConnectionParameters("127.0.0.1", port, "/", pika.PlainCredentials("guest", "guest"), socket_timeout=10)


def declare(old: RabbitMq) -> None:
    with pika.BlockingConnection(parameters(old.port)) as connection:
        channel = connection.channel()
        channel.exchange_declare("shop", "topic", durable=True)
        channel.queue_declare("orders", durable=True, arguments=ARGUMENTS)
        channel.queue_bind("orders", "shop", "order")
        channel.confirm_delivery()
        for number in range(BEFORE):
            channel.basic_publish("shop", "order", b"old-%d" % number)


def follow(step: int, old: RabbitMq, new: Broker, amqp_port: int, folder: Path) -> str:
    """Run the commands of a step of the page, and return what they print."""
    text = STEPS[step - 1].replace(ADDRESS, f"127.0.0.1:{amqp_port}")
    environment = {**old.environment, "PENSTOCK_URI": new.uri()}
    environment["PATH"] = f"{Path(penstock_command()).parent}:{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", text], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def waiting(old: RabbitMq) -> dict[str, int]:
    """Return the messages of each queue of the old broker."""
    command = ["rabbitmqctl", "list_queues", "name", "messages", "--formatter", "json", "--quiet"]
    done = subprocess.run(command, env=old.environment, capture_output=True, text=True, check=True)
    return {queue["name"]: queue["messages"] for queue in json.loads(done.stdout)}


def test_a_queue_in_use_moves_by_the_commands_of_the_page(
    old: RabbitMq, new: Broker, amqp_port: int, tmp_path: Path
) -> None:
    declare(old)
    publisher, consumer = Client(old.port, publishing), Client(old.port, consuming)
    try:
        follow(1, old, new, amqp_port, tmp_path)
        with penstock.connect(new.uri()) as connection:
            assert connection.admin.get_queue("orders").arguments == ARGUMENTS
        follow(2, old, new, amqp_port, tmp_path)
        assert "move-orders" in follow(3, old, new, amqp_port, tmp_path)

        consumer.move(amqp_port)
        at_old = len(consumer.bodies)
        eventually(lambda: len(consumer.bodies) > at_old + 200, True, seconds_max=60)
        new.kill()
        new.start()
        publisher.move(amqp_port)
        sent = len(publisher.bodies)
        eventually(lambda: len(publisher.bodies) > sent + 200, True, seconds_max=60)
        eventually(lambda: waiting(old)["orders"] == 0, True, seconds_max=60)
        assert "orders" in follow(4, old, new, amqp_port, tmp_path)
        publisher.stop()
        follow(5, old, new, amqp_port, tmp_path)
        wanted = {b"old-%d" % number for number in range(BEFORE)} | set(publisher.bodies)
        eventually(lambda: wanted <= set(consumer.bodies), True, seconds_max=60)
    finally:
        publisher.stop()
        consumer.stop()

    assert set(consumer.bodies) == wanted
    with penstock.connect(new.uri()) as connection:
        assert connection.admin.get_queue("orders").ready_count == 0
