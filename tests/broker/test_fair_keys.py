"""Queues whose keys take turns: over AMQP, the client and the command, by policies, through restarts and kills."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

import penstock
from support import Broker
from support.broker import free_ports, penstock_command

TENANT = "tenant"
ARGUMENTS = {"x-fair-key": TENANT}


def publish(connection: penstock.Connection, *bodies: str, queue: str = "jobs", priority: int | None = None) -> None:
    """Publish bodies whose first letter is the tenant."""
    for body in bodies:
        properties = penstock.Properties(priority=priority)
        connection.publish(body.encode(), routing_key=queue, headers={TENANT: body[0]}, properties=properties)


def taken(connection: penstock.Connection, queue: str = "jobs") -> list[str]:
    found = []
    while (message := connection.get(queue, auto_ack=True)) is not None:
        found.append(message.body.decode())
    return found


@pytest.fixture
def connection(broker: Broker, vhost: str) -> Iterator[penstock.Connection]:
    with penstock.connect(broker.uri(vhost)) as connection:
        connection.declare_queue("jobs", arguments=ARGUMENTS)
        yield connection


def test_one_tenants_backlog_does_not_delay_the_others(connection: penstock.Connection) -> None:
    publish(connection, *(f"a{number}" for number in range(50)))
    publish(connection, "b0", "b1", "c0")

    stream = connection.consume("jobs", prefetch=100, idle_timeout=4)
    found = []
    for message in stream:
        found.append(message.body.decode())
        message.ack()

    assert found[:6] == ["a0", "b0", "c0", "a1", "b1", "a2"]
    assert found[6:] == [f"a{number}" for number in range(3, 50)]


def test_returned_messages_keep_their_places_and_priorities_come_first(connection: penstock.Connection) -> None:
    connection.declare_queue("both", arguments={**ARGUMENTS, "x-max-priority": 3})
    publish(connection, "a0", "a1", "b0", queue="both")
    publish(connection, "b1", "b2", queue="both", priority=2)
    first = connection.get("both")
    assert first is not None
    assert first.body == b"b1"
    first.nack(requeue=True)

    assert taken(connection, "both") == ["b1", "b2", "a0", "b0", "a1"]


def test_a_policy_gives_keys_turns(connection: penstock.Connection) -> None:
    connection.declare_queue("plain")
    publish(connection, "a0", "a1", queue="plain")
    connection.admin.set_policy("fair", "plain", {"fair-key": TENANT})
    publish(connection, "a2", "a3", "b0", queue="plain")

    found = taken(connection, "plain")

    assert found.index("b0") <= 2
    assert [body for body in found if body[0] == "a"] != []
    assert sorted(found) == ["a0", "a1", "a2", "a3", "b0"]
    connection.admin.delete_policy("fair")
    publish(connection, "a4", "a5", "b1", queue="plain")
    assert taken(connection, "plain") == ["a4", "a5", "b1"]


def test_another_value_than_a_name_is_refused(connection: penstock.Connection) -> None:
    for value in ("", 5, True):
        with pytest.raises(penstock.PenstockError, match=r"'x-fair-key' whose value .* is not valid"):
            connection.declare_queue("refused", arguments={"x-fair-key": value})
    with pytest.raises(penstock.PenstockError, match=r"'x-fair-key' that streams do not support|not supported"):
        connection.declare_queue("refused", arguments={**ARGUMENTS, "x-queue-type": "stream"})


def test_the_command_declares_and_peeks(broker: Broker, vhost: str, connection: penstock.Connection) -> None:
    def run(*arguments: str) -> str:
        command = [penstock_command(), *arguments, "--uri", broker.uri(vhost)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    run("queue", "declare", "made", "--fair-key", TENANT)
    publish(connection, "a0", "a1", "b0", queue="made")
    assert connection.admin.get_queue("made").arguments == ARGUMENTS
    peeked = run("queue", "peek", "made", "--output", "json").splitlines()
    assert [json.loads(line)["body"] for line in peeked] == ["a0", "a1", "b0"], "one key after the other"
    assert taken(connection, "made") == ["a0", "b0", "a1"]


def test_turns_survive_kills(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        expected: dict[str, list[str]] = {tenant: [] for tenant in "abcd"}
        for round_ in range(2):
            with penstock.connect(broker.uri()) as connection:
                connection.declare_queue("jobs", arguments=ARGUMENTS)
                for number in range(2):
                    for tenant, bodies in expected.items():
                        count = 4 if tenant == "a" else 1
                        added = [f"{tenant}{round_}.{number}.{each}" for each in range(count)]
                        publish(connection, *added)
                        bodies.extend(added)
                held = connection.get("jobs")
                assert held is not None
            broker.kill()
            broker.start()
        with penstock.connect(broker.uri()) as connection:
            found = taken(connection)
        assert {tenant: [body for body in found if body[0] == tenant] for tenant in "abcd"} == expected
        # As long as each tenant has some, each round has all of them.
        rounds = [found[at : at + 4] for at in range(0, 16, 4)]
        assert all({body[0] for body in each} == set("abcd") for each in rounds)


def test_an_amqp_consumer_gets_keys_in_turn(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    parameters = pika.ConnectionParameters("127.0.0.1", port)
    found = []
    with (
        Broker(tmp_path / "data", "--amqp", f"127.0.0.1:{port}"),
        pika.BlockingConnection(parameters) as connection,
    ):
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("jobs", durable=True, arguments={**ARGUMENTS, "x-single-active-consumer": True})
        for body in (*(f"a{number}" for number in range(10)), "b0", "b1"):
            channel.basic_publish("", "jobs", body.encode(), pika.BasicProperties(headers={TENANT: body[0]}))
        channel.basic_publish("", "jobs", b"none")
        channel.basic_publish("", "jobs", b"5", pika.BasicProperties(headers={TENANT: 5}))
        channel.basic_qos(prefetch_count=1)
        for method, _, body in channel.consume("jobs"):
            found.append(body.decode())
            channel.basic_ack(method.delivery_tag)
            if len(found) == 14:
                break
        channel.cancel()
    assert found[:7] == ["a0", "b0", "5", "none", "a1", "b1", "a2"]
    assert found[7:] == [f"a{number}" for number in range(3, 10)]
