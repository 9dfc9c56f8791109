"""Queues that are deleted when they were unused for their time."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from support import Broker
from support.waiting import eventually

HOUR = 3_600_000


def names(connection: penstock.Connection) -> list[str]:
    return [queue.name for queue in connection.admin.list_queues()]


@pytest.fixture
def connection(broker: Broker, vhost: str) -> Iterator[penstock.Connection]:
    with penstock.connect(broker.uri(vhost)) as connection:
        yield connection


def test_an_unused_queue_goes_with_its_messages_and_others_stay(connection: penstock.Connection) -> None:
    connection.declare_queue("goes", arguments={"x-expires": 300})
    connection.declare_queue("stays", arguments={"x-expires": HOUR})
    connection.publish(b"it goes too", routing_key="goes")

    eventually(lambda: names(connection), ["stays"], 60)

    connection.declare_queue("goes", arguments={"x-expires": HOUR})
    assert connection.admin.get_queue("goes").ready_count == 0


def test_a_queue_with_a_consumer_stays_until_it_left(connection: penstock.Connection) -> None:
    connection.declare_queue("used", arguments={"x-expires": 100})
    with connection.consume("used") as consumer:
        connection.declare_queue("other", arguments={"x-expires": 100})
        eventually(lambda: names(connection), ["used"], 60)
        connection.publish(b"here", routing_key="used")
        message = next(iter(consumer))
        assert message.body == b"here"
        message.ack()

    eventually(lambda: names(connection), [], 60)


def test_a_policy_lets_queues_expire_and_its_end_lets_them_stay(connection: penstock.Connection) -> None:
    for name in ("one", "other"):
        connection.declare_queue(name)
    connection.admin.set_policy("soon", "^one$", {"expires": 100}, "queues")

    eventually(lambda: names(connection), ["other"], 60)

    connection.admin.set_policy("late", "^other$", {"expires": HOUR}, "queues")
    connection.admin.set_policy("later", "^other$", {"expires": 100}, "queues", operator=True)
    eventually(lambda: names(connection), [], 60)
    for name in ("soon", "late"):
        connection.admin.delete_policy(name)
    connection.admin.delete_policy("later", operator=True)


def test_the_time_begins_anew_after_a_kill(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as own:
        with penstock.connect(own.uri()) as connection:
            connection.declare_queue("long", arguments={"x-expires": HOUR})
            connection.declare_queue("short", arguments={"x-expires": 2_000})
        own.kill()
        own.start()
        with penstock.connect(own.uri()) as connection:
            eventually(lambda: names(connection), ["long"], 60)
        own.kill()
        own.start()
        with penstock.connect(own.uri()) as connection:
            assert names(connection) == ["long"], "its deletion is recorded"


def test_thousands_of_queues_that_expire_go_and_their_neighbours_stay(connection: penstock.Connection) -> None:
    for number in range(1_000):
        connection.declare_queue(f"q{number}", arguments={"x-expires": 2_000})
    connection.declare_queue("stays")

    eventually(lambda: names(connection), ["stays"], 120)
