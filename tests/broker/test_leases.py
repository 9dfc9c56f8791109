"""Leases over the wire: reserve, read over Flight, acknowledge, release, and their state after a kill."""

import asyncio
import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

import penstock
from penstock import aio
from support import Broker
from support.broker import penstock_command


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data") as broker:
        yield broker


def read(broker: Broker, vhost: str, user: str = "guest:guest", **ticket: Any) -> dict[str, list[Any]]:
    name, _, password = user.partition(":")
    client = flight.FlightClient(f"grpc://{broker.address}")
    options = flight.FlightCallOptions(headers=[client.authenticate_basic_token(name, password)])
    with client:
        table = client.do_get(flight.Ticket(json.dumps({"vhost": vhost, **ticket})), options).read_all()
    columns: dict[str, list[Any]] = table.to_pydict()
    return columns


def fill(connection: penstock.Connection, queue: str, count: int) -> None:
    connection.declare_queue(queue)
    connection.publish_many([b"%d" % number for number in range(count)], routing_key=queue)


def test_a_lease_is_reserved_read_and_acknowledged(broker: Broker, vhost: str, connection: penstock.Connection) -> None:
    fill(connection, "orders", 10)

    reserved = connection.reserve_lease("orders", "warm", 1, messages_max=4)

    assert (reserved.lease.lease, reserved.lease.message_count, reserved.lease.bytes) == (1, 4, 4)
    assert (reserved.is_new, reserved.ready_count) == (True, 6)
    again = connection.reserve_lease("orders", "warm", 1, messages_max=9)
    assert (again.lease, again.is_new) == (reserved.lease, False)
    queue = connection.admin.get_queue("orders")
    assert (queue.ready_count, queue.unacked_count, queue.consumer_count) == (6, 4, 0)
    rows = read(broker, vhost, queue="orders", owner="warm", lease=1)
    assert rows["body"] == [b"0", b"1", b"2", b"3"]
    assert rows["partition"] == ["orders"] * 4
    assert rows["offset"] == sorted(rows["offset"])
    assert connection.ack_leases("orders", "warm", 1) == 4
    assert connection.ack_leases("orders", "warm", 1) == 0
    assert connection.admin.get_queue("orders").unacked_count == 0
    assert connection.admin.list_leases("orders").owners[0].acked == 1


def test_the_parts_of_a_lease_are_its_rows(broker: Broker, vhost: str, connection: penstock.Connection) -> None:
    fill(connection, "orders", 100)
    connection.reserve_lease("orders", "warm", 1)

    lease: dict[str, Any] = {"queue": "orders", "owner": "warm", "lease": 1, "columns": ["body"]}
    parts = [read(broker, vhost, part=part, parts=3, **lease) for part in range(3)]

    assert [len(part["body"]) for part in parts] == [33, 33, 34]
    assert [body for part in parts for body in part["body"]] == [b"%d" % number for number in range(100)]
    assert list(parts[0]) == ["body"]


def test_rows_of_a_queue_with_priorities_come_highest_first_with_ascending_offsets(
    broker: Broker, vhost: str, connection: penstock.Connection
) -> None:
    """Offsets of priorities from 128 on were negative, so that Spark took their rows for ones that it had read."""
    connection.declare_queue("orders", arguments={"x-max-priority": 255})
    for priority, body in ((0, b"e"), (128, b"c"), (255, b"a"), (7, b"d"), (128, b"c"), (200, b"b")):
        connection.publish(body, routing_key="orders", properties=penstock.Properties(priority=priority))
    connection.reserve_lease("orders", "warm", 1)

    rows = read(broker, vhost, queue="orders", owner="warm", lease=1, columns=["offset", "body", "properties"])

    assert rows["body"] == [b"a", b"b", b"c", b"c", b"d", b"e"]
    bases = [(255 - each["priority"]) << 55 for each in rows["properties"]]
    assert [offset - base for offset, base in zip(rows["offset"], bases, strict=True)] == [1, 1, 1, 2, 1, 1]
    assert rows["offset"] == sorted(set(rows["offset"]))
    assert rows["offset"][0] > 0


def test_released_messages_are_consumed_by_others(connection: penstock.Connection) -> None:
    fill(connection, "orders", 3)
    connection.reserve_lease("orders", "warm", 1)
    assert connection.get("orders") is None

    assert connection.release_leases("orders", "warm") == 3

    message = connection.get("orders")
    assert message is not None
    assert (message.body, message.redelivered) == (b"0", True)
    message.ack()
    assert connection.admin.list_leases("orders").owners == ()


def test_what_a_lease_cannot_be_is_refused(broker: Broker, vhost: str, connection: penstock.Connection) -> None:
    fill(connection, "orders", 3)
    connection.declare_stream("events")

    with pytest.raises(penstock.InvalidArgumentError, match="the next new one is 1"):
        connection.reserve_lease("orders", "warm", 2)
    with pytest.raises(penstock.InvalidArgumentError, match="has no name"):
        connection.reserve_lease("orders", "", 1)
    with pytest.raises(penstock.TooLargeError):
        connection.reserve_lease("orders", "x" * 256, 1)
    with pytest.raises(penstock.RefusedError, match="stream"):
        connection.reserve_lease("events", "warm", 1)
    with pytest.raises(penstock.NotFoundError):
        connection.reserve_lease("nothing", "warm", 1)
    with pytest.raises(penstock.InvalidArgumentError, match="up to 0"):
        connection.ack_leases("orders", "warm", 1)
    with pytest.raises(KeyError, match="no lease 1"):
        read(broker, vhost, queue="orders", owner="warm", lease=1)
    connection.reserve_lease("orders", "warm", 1)
    for wrong in ({"part": 2, "parts": 2}, {"parts": 5_000}, {"parts": 0}, {"partition": "orders"}):
        with pytest.raises(pa.ArrowInvalid):
            read(broker, vhost, queue="orders", owner="warm", lease=1, **wrong)


def test_whoever_may_not_read_the_queue_gets_no_lease(
    broker: Broker, vhost: str, connection: penstock.Connection
) -> None:
    fill(connection, "orders", 3)
    connection.reserve_lease("orders", "warm", 1)
    connection.admin.put_user("writer", "secret")
    connection.admin.set_permission("writer", vhost, configure=".*", write=".*", read="^other$")

    with penstock.connect(broker.uri(vhost, "writer", "secret")) as other:
        for refused in (
            lambda: other.reserve_lease("orders", "theirs", 1),
            lambda: other.ack_leases("orders", "warm", 1),
            lambda: other.release_leases("orders", "warm"),
            lambda: other.admin.list_leases("orders"),
        ):
            with pytest.raises(penstock.AccessRefusedError):
                refused()
    with pytest.raises(flight.FlightUnauthorizedError):
        read(broker, vhost, "writer:secret", queue="orders", owner="warm", lease=1)


def test_leases_are_there_for_asyncio(broker: Broker, vhost: str, connection: penstock.Connection) -> None:
    fill(connection, "orders", 3)

    async def run() -> None:
        async with aio.connect(broker.uri(vhost)) as other:
            assert (await other.reserve_lease("orders", "warm", 1)).lease.message_count == 3
            assert len((await other.admin.list_leases("orders", "warm")).owners) == 1
            assert (await other.admin.list_leases("orders", "nobody")).owners == ()
            assert await other.ack_leases("orders", "warm", 1) == 3
            assert await other.release_leases("orders", "warm") == 0

    asyncio.run(run())


def test_the_shell_shows_leases_and_releases_them(broker: Broker, vhost: str, connection: penstock.Connection) -> None:
    fill(connection, "orders", 3)
    connection.reserve_lease("orders", "warm", 1, messages_max=2)

    def run(*arguments: str) -> str:
        command = [penstock_command(), "queue", *arguments, "--uri", broker.uri(vhost)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert "warm" in run("leases", "orders")
    shown = json.loads(run("leases", "orders", "--output", "json"))
    assert shown["owners"][0]["leases"][0]["message_count"] == 2
    assert "2 messages" in run("release-leases", "orders", "warm")
    assert connection.admin.get_queue("orders").ready_count == 3


@pytest.mark.slow
def test_leases_stand_after_the_broker_was_killed(own_broker: Broker) -> None:
    with penstock.connect(own_broker.uri()) as connection:
        fill(connection, "orders", 30_000)
        connection.reserve_lease("orders", "warm", 1, messages_max=10_000)
        connection.reserve_lease("orders", "warm", 2, messages_max=10_000)
        connection.ack_leases("orders", "warm", 1)
        before = read(own_broker, "/", queue="orders", owner="warm", lease=2)

    own_broker.kill()
    own_broker.start()

    assert read(own_broker, "/", queue="orders", owner="warm", lease=2) == before
    with penstock.connect(own_broker.uri()) as connection:
        queue = connection.admin.get_queue("orders")
        assert (queue.ready_count, queue.unacked_count) == (10_000, 10_000)
        assert connection.reserve_lease("orders", "warm", 2).is_new is False
        connection.reserve_lease("orders", "warm", 3)
        rest = read(own_broker, "/", queue="orders", owner="warm", lease=3)
        assert connection.ack_leases("orders", "warm", 3) == 20_000
        queue = connection.admin.get_queue("orders")
        assert (queue.ready_count, queue.unacked_count) == (0, 0)
    got = Counter(before["body"] + rest["body"])
    assert (len(got), max(got.values())) == (20_000, 1)


@pytest.mark.slow
def test_a_queue_is_emptied_once_while_the_broker_is_killed(own_broker: Broker) -> None:
    """The owner behaves as a query: it stores the number, works, and acknowledges before the next one."""
    rows, kills = 20_000, 5
    with penstock.connect(own_broker.uri()) as connection:
        fill(connection, "orders", rows)
    got: Counter[bytes] = Counter()
    lease, batches = 0, 0
    while True:
        with penstock.connect(own_broker.uri()) as connection:
            connection.ack_leases("orders", "warm", lease)
            reserved = connection.reserve_lease("orders", "warm", lease + 1, messages_max=1_000)
            if batches % 4 == 1 and batches // 4 < kills:
                own_broker.kill()
                own_broker.start()
        if reserved.lease.message_count == 0:
            break
        got.update(read(own_broker, "/", queue="orders", owner="warm", lease=lease + 1)["body"])
        lease, batches = lease + 1, batches + 1

    assert (sum(got.values()), len(got)) == (rows, rows)
