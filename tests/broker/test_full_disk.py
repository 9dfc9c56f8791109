"""A full file system.

Publishers are refused, consumers go on, publishing resumes by itself, and no confirmed message is lost.
"""

import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path

import pytest

import penstock
from penstock.client.errors import BlockedError
from support import Broker, BrokerError, eventually

pytestmark = pytest.mark.slow
BODY_BYTES = 100_000
MESSAGES_MAX = 3_000
VHOSTS = 90


def body(number: int) -> bytes:
    return f"{number:08}".encode().ljust(BODY_BYTES, b".")


def number_of(content: bytes) -> int:
    return int(content[:8])


def fill(connection: penstock.Connection, first: int) -> int:
    """Publish until refused; return the number after the last confirmed message."""
    for number in range(first, first + MESSAGES_MAX):
        try:
            connection.publish(body(number), routing_key="jobs")
        except BlockedError as error:
            told = str(error)
            break
    else:
        raise AssertionError("the disk never filled")
    assert re.search(r"disk is almost full: \d+ bytes free, \d+ reserved; ", told)
    assert "/" not in told, "no path for a stranger's eyes"
    return number


def take(connection: penstock.Connection, count: int) -> list[bytes]:
    bodies = []
    with connection.consume("jobs", prefetch=50) as messages:
        for message in islice(messages, count):
            bodies.append(message.body)
            message.ack()
    return bodies


def is_stored(connection: penstock.Connection, content: bytes) -> bool:
    try:
        connection.publish(content, routing_key="jobs")
    except BlockedError:
        return False
    return True


def disk_full(broker: Broker) -> bool:
    return "penstock_disk_full 1.0" in broker.scrape()


def test_a_disk_that_fills_is_drained_and_filled_again(tmp_path: Path, small_disk: Callable[..., Path]) -> None:
    disk = small_disk(tmp_path / "disk", kilobytes=200 * 1_024)
    broker = Broker(disk / "data", shards=1)
    with broker, penstock.connect(broker.uri()) as connection:
        connection.declare_queue("jobs")
        end = fill(connection, 0)
        assert end > 500
        assert disk_full(broker)
        eventually(lambda: broker.log.count("the disk is almost full"), 1)

        connection.declare_queue("declared while the disk is full")
        taken = take(connection, end // 2)

        assert [number_of(content) for content in taken] == list(range(end // 2))
        assert all(content == body(number) for number, content in enumerate(taken))
        eventually(lambda: disk_full(broker), False)
        eventually(lambda: broker.log.count("the disk has free space again"), 1)
        again = fill(connection, end)
        assert again > end + 100

    with broker, penstock.connect(broker.uri()) as connection:
        left = connection.admin.get_queue("jobs").ready_count
        rest = [number_of(content) for content in take(connection, left)]
        assert set(range(end // 2, again)) <= set(rest), "a confirmed message is lost"
        # The space of drained messages may not be freed yet at the first attempt.
        eventually(lambda: is_stored(connection, body(again)), True)


def test_what_another_program_takes_blocks_publishers_until_it_is_given_back(
    tmp_path: Path, small_disk: Callable[..., Path]
) -> None:
    disk = small_disk(tmp_path / "disk", kilobytes=200 * 1_024)
    broker = Broker(disk / "data", shards=1)
    with broker, penstock.connect(broker.uri()) as connection:
        connection.declare_queue("jobs")
        connection.publish(body(0), routing_key="jobs")
        (disk / "other").write_bytes(bytes(150 << 20))
        eventually(lambda: disk_full(broker), True)

        with pytest.raises(BlockedError, match="free"):
            connection.publish(body(1), routing_key="jobs")
        got = connection.get("jobs")
        assert got is not None
        assert got.body == body(0)

        (disk / "other").unlink()
        eventually(lambda: disk_full(broker), False)
        connection.publish(body(2), routing_key="jobs")


def test_a_broker_with_many_vhosts_starts_on_a_full_disk_and_is_drained(
    tmp_path: Path, small_disk: Callable[..., Path]
) -> None:
    disk = small_disk(tmp_path / "disk", kilobytes=200 * 1_024)
    broker = Broker(disk / "data", shards=1)
    with broker:
        with penstock.connect(broker.uri()) as connection:
            for number in range(VHOSTS):
                connection.admin.create_vhost(f"v{number}")
            connection.declare_queue("jobs")
            end = fill(connection, 0)
        for _ in range(3):
            broker.kill()
            broker.start()

        with penstock.connect(broker.uri()) as connection:
            assert [number_of(content) for content in take(connection, end)] == list(range(end))
            # The space of drained messages may not be freed yet at the first attempt.
            eventually(lambda: is_stored(connection, body(end)), True)
            filled = end + 1

            def is_filled_again() -> bool:
                nonlocal filled
                filled = fill(connection, filled)
                return filled > end + end // 2

            eventually(is_filled_again, True)


def test_a_start_that_finds_no_room_says_how_much_it_needs_and_changes_no_log(
    tmp_path: Path, small_disk: Callable[..., Path]
) -> None:
    disk = small_disk(tmp_path / "disk", kilobytes=100 * 1_024)
    broker = Broker(disk / "data", shards=1)
    with broker:
        with penstock.connect(broker.uri()) as connection:
            connection.declare_queue("jobs")
            connection.declare_queue("own", arguments={"x-dedicated": True})
            connection.publish(body(0), routing_key="jobs")
            connection.publish(body(1), routing_key="own")
        broker.kill()
        fill_up(disk / "other")
        before = logs(broker.data_dir)

        with pytest.raises(BrokerError, match=r"has \d+ bytes free, and a start needs 16384: 8192 for each of 2 logs"):
            broker.start()

        assert logs(broker.data_dir) == before
        (disk / "other").unlink()
        broker.start()
        with penstock.connect(broker.uri()) as connection:
            for number, queue in enumerate(["jobs", "own"]):
                got = connection.get(queue)
                assert got is not None
                assert got.body == body(number)


def fill_up(path: Path) -> None:
    """Use up all space."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4_096))
    assert shutil.disk_usage(path).free == 0


def logs(data_dir: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in data_dir.rglob("msgs.*")}
