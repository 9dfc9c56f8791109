"""A broker that was killed has everything of its messages again that is not in their bodies.

Priorities, times, delays, delivery counts, headers of dead letters and retries are set up over AMQP, the broker is
killed, and each is found as it was before. A feature that keeps state beside its messages adds a pair of functions to
`FEATURES`: one sets the state up and says what a client sees of it, the other one says what a client sees afterwards.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
from pika.adapters.blocking_connection import BlockingChannel

import penstock
from support import Broker
from support.broker import free_ports
from support.waiting import eventually

HOUR_MS = 3_600_000
TO_DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


class Client:
    """What a feature sees: a channel that confirms, and the counts over gRPC."""

    def __init__(self, channel: BlockingChannel, grpc: penstock.Connection) -> None:
        self.channel, self.grpc = channel, grpc
        channel.confirm_delivery()

    def declare(self, queue: str, **arguments: object) -> None:
        self.channel.queue_declare(queue, durable=True, arguments=arguments)

    def publish(self, queue: str, body: bytes, exchange: str = "", **properties: Any) -> None:
        self.channel.basic_publish(exchange, queue, body, pika.BasicProperties(delivery_mode=2, **properties))

    def got(self, queue: str) -> tuple[int, Any, bytes]:
        """Get the next message, which comes soon."""
        found: list[tuple[int, Any, bytes]] = []

        def get() -> bool:
            method, properties, body = self.channel.basic_get(queue)
            if method is not None:
                found.append((method.delivery_tag, properties, body))
            return method is not None

        eventually(get, True, 60)
        return found[0]

    def counts(self, queue: str) -> tuple[int, int, int]:
        """Return how many are ready, how many of these wait, and how many are unacked."""
        found = self.grpc.admin.get_queue(queue)
        return found.ready_count, found.delayed_count, found.unacked_count


Setup = Callable[[Client], object]


def ranked(client: Client) -> list[bytes]:
    client.declare("ranked", **{"x-max-priority": 9})
    for priority in (3, 9, 0, 3):
        client.publish("ranked", b"%d" % priority, priority=priority)
    return [b"9", b"3", b"3", b"0"]


def ranked_after(client: Client) -> list[bytes]:
    return [client.got("ranked")[2] for _ in range(4)]


def expiring(client: Client) -> tuple[object, ...]:
    """One expires soon as a dead letter, one much later by its own time, one by that of the queue."""
    client.declare("letters")
    client.declare(
        "expiring",
        **{"x-message-ttl": HOUR_MS, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters"},
    )
    client.publish("expiring", b"late", expiration=str(HOUR_MS // 2))
    client.publish("expiring", b"soon", expiration="1500")
    client.publish("expiring", b"aging")
    return (b"soon", "expired", "1500"), [(b"late", str(HOUR_MS // 2)), (b"aging", None)]


def expiring_after(client: Client) -> tuple[object, ...]:
    _, properties, body = client.got("letters")
    death = properties.headers["x-death"][0]
    left = [client.got("expiring") for _ in range(2)]
    assert client.channel.basic_get("expiring")[0] is None
    return (body, death["reason"], death["original-expiration"]), [(body, found.expiration) for _, found, body in left]


def delayed(client: Client) -> tuple[bytes, int]:
    client.channel.exchange_declare(
        "delaying", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"}
    )
    client.declare("delayed")
    client.channel.queue_bind("delayed", "delaying", "delayed")
    client.publish("delayed", b"late", "delaying", headers={"x-delay": HOUR_MS})
    client.publish("delayed", b"soon", "delaying", headers={"x-delay": 1_500})
    return b"soon", 1


def delayed_after(client: Client) -> tuple[bytes, int]:
    body = client.got("delayed")[2]
    assert client.channel.basic_get("delayed")[0] is None
    return body, client.counts("delayed")[1]


def counted(client: Client) -> tuple[int, bytes]:
    client.declare("counted", **{"x-delivery-limit": 3, **TO_DEAD})
    client.publish("counted", b"twice")
    for _ in range(2):
        client.channel.basic_reject(client.got("counted")[0], requeue=True)
    eventually(lambda: client.counts("counted"), (1, 0, 0), 60)
    return 2, b"twice"


def counted_after(client: Client) -> tuple[int, bytes]:
    _, properties, body = client.got("counted")
    return properties.headers["x-delivery-count"], body


def buried(client: Client) -> Any:
    """Let a message with headers of its own die twice, in different queues and ways."""
    client.declare("dead")
    client.declare("grave", **{**TO_DEAD, "x-message-ttl": 1})
    client.declare("buried", **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"})
    client.publish("buried", b"dead", headers={"own": [1, {"deep": True}]}, expiration=str(HOUR_MS), priority=4)
    client.channel.basic_reject(client.got("buried")[0], requeue=False)
    tag, properties, _ = client.got("dead")
    client.channel.basic_nack(tag, requeue=True)
    eventually(lambda: client.counts("dead"), (1, 0, 0), 60)
    assert [death["queue"] for death in properties.headers["x-death"]] == ["grave", "buried"]
    return properties.headers, properties.priority


def buried_after(client: Client) -> Any:
    properties = client.got("dead")[1]
    return properties.headers, properties.priority


def retried(client: Client) -> tuple[bytes, tuple[int, int, int]]:
    """Two wait: one that comes back soon, and one that does not."""
    client.declare("retried", **{"x-retry-backoff": [1, 1_500, HOUR_MS]})
    for body, count in ((b"late", 3), (b"soon", 2)):
        client.publish("retried", body)
        for _ in range(count):
            client.channel.basic_nack(client.got("retried")[0], requeue=True)
    return b"soon", (1, 1, 1)


def retried_after(client: Client) -> tuple[bytes, tuple[int, int, int]]:
    body = client.got("retried")[2]
    return body, client.counts("retried")


FEATURES: tuple[tuple[Setup, Setup], ...] = (
    (ranked, ranked_after),
    (expiring, expiring_after),
    (delayed, delayed_after),
    (counted, counted_after),
    (buried, buried_after),
    (retried, retried_after),
)


def test_what_is_kept_beside_messages_is_there_after_a_kill(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    with Broker(tmp_path / "data", "--amqp", f"127.0.0.1:{port}") as broker:
        connection = connected(port)
        with penstock.connect(broker.uri()) as grpc:
            before = [set_up(Client(connection.channel(), grpc)) for set_up, _ in FEATURES]
        broker.kill()
        with suppress(pika.exceptions.AMQPError):
            connection.close()
        broker.start()
        connection = connected(port)
        with penstock.connect(broker.uri()) as grpc:
            after = [seen(Client(connection.channel(), grpc)) for _, seen in FEATURES]
        connection.close()

    assert after == before


def connected(port: int) -> pika.BlockingConnection:
    parameters = pika.ConnectionParameters("127.0.0.1", port, socket_timeout=60, blocked_connection_timeout=60)
    return pika.BlockingConnection(parameters)
