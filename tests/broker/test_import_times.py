"""Imported messages keep their times: those that expire do so, and delayed ones wait for their queues' consumers."""

import base64
import hashlib
import time
from pathlib import Path
from struct import pack
from typing import Any

import pytest

import penstock
from penstock.importing.writing import import_lavinmq
from support import Broker
from support.lavinmq import (
    DELIVERY_MODE,
    HEADERS,
    PRIORITY,
    LavinVhost,
    bound,
    exchange,
    message,
    queue,
    short,
    table,
    write_directory,
)
from support.waiting import eventually

EXPIRATION = 0x0100
HOUR_MS = 3_600_000
USER: dict[str, Any] = {
    "name": "guest",
    "password_hash": base64.b64encode(b"salt" + hashlib.sha256(b"saltguest").digest()).decode(),
    "hashing_algorithm": "rabbit_password_hashing_sha256",
    "tags": "administrator",
    "permissions": {"/": {"config": ".*", "write": ".*", "read": ".*"}},
}


def expiring(milliseconds: str) -> bytes:
    return pack("<HB", DELIVERY_MODE | EXPIRATION, 2) + short(milliseconds)


def delayed(milliseconds: object, priority: int, **headers: object) -> bytes:
    return (
        pack("<H", HEADERS | DELIVERY_MODE | PRIORITY)
        + table({"x-delay": milliseconds, **headers})
        + bytes((2, priority))
    )


def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.fixture
def source(tmp_path: Path) -> LavinVhost:
    (tmp_path / "lavinmq").mkdir()
    write_directory(tmp_path / "lavinmq", [USER], ["/"])
    return LavinVhost(tmp_path / "lavinmq", "/")


def started(source: LavinVhost, data_dir: Path, shards: int = 1) -> Broker:
    report = import_lavinmq(
        source.path.parent, data_dir, is_partial=False, on_progress=lambda _done, _total: None, shard_count=shards
    )
    assert list(report.left_out) == []
    return Broker(data_dir)


def test_a_message_expires_after_the_time_that_it_had(source: LavinVhost, tmp_path: Path) -> None:
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    source.write_definitions(queue("q", letters), queue("dead"))
    stored = now_ms()
    kept = [
        message(stored, "", "q", b"kept", expiring(str(HOUR_MS))),
        message(stored, "", "q", b"odd", expiring("soon")),
    ]
    source.write_queue("q", [message(stored - HOUR_MS, "", "q", b"over", expiring("1000")), *kept])

    with started(source, tmp_path / "data") as broker, penstock.connect(broker.uri()) as connection:
        eventually(lambda: connection.admin.get_queue("dead").ready_count, 1)
        dead = connection.get("dead")
        assert dead is not None
        assert (dead.body, dead.headers["x-first-death-reason"]) == (b"over", "expired")
        assert [each.body for each in connection.peek("q", 10)] == [b"kept", b"odd"]


@pytest.mark.parametrize("shards", [1, 3])
def test_delayed_messages_come_to_their_queues_when_they_are_due(
    source: LavinVhost, tmp_path: Path, shards: int
) -> None:
    source.write_definitions(
        exchange("later", "x-delayed-message", {"x-delayed-type": "topic"}),
        queue("one"),
        queue("urgent", {"x-max-priority": 5}),
        queue("other"),
        bound("one", "later", "a.#"),
        bound("urgent", "later", "a.#"),
        bound("other", "later", "b"),
    )
    stored = now_ms() - HOUR_MS
    source.write_queue("one", [message(stored, "", "one", b"before")])
    source.write_queue(
        "amq.delayed-later",
        [
            message(stored, "later", "a.b", b"due", delayed(1_000, 0)),
            message(stored, "later", "a.b", b"urgent", delayed(1_000, 9)),
            message(stored, "later", "b", b"by its key", delayed(1_000, 0, CC=["a"])),
            message(stored, "later", "a.b", b"waits", delayed(2 * HOUR_MS, 0)),
            message(stored, "later", "nowhere", b"lost", delayed(1_000, 0)),
        ],
    )

    with started(source, tmp_path / "data", shards) as broker, penstock.connect(broker.uri()) as connection:
        counts = {each.name: each.ready_count for each in connection.admin.list_queues()}
        assert counts == {"one": 5, "urgent": 4, "other": 1}
        assert taken(connection, "one") == [b"before", b"due", b"urgent", b"by its key"]
        assert taken(connection, "urgent") == [b"urgent", b"due", b"by its key"]
        found = connection.get("other")
        assert found is not None
        assert (found.exchange, found.routing_key, found.headers["x-delay"]) == ("later", "b", -1_000)
        assert connection.admin.get_queue("one").ready_count == 1


def taken(connection: penstock.Connection, queue: str) -> list[bytes]:
    """Get and ack messages until there is none."""
    bodies: list[bytes] = []
    while (found := connection.get(queue)) is not None:
        bodies.append(found.body)
        found.ack()
    return bodies
