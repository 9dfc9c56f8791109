"""Backups of a broker under load, and new brokers made from them."""

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

import penstock
from support import Broker
from support.broker import penstock_command, shards_of_this_run

QUEUES = [f"work-{number}" for number in range(20)]
SMALL_SEGMENTS = """segment_bytes_min = 65536
segment_bytes_max = 262144
"""


@pytest.fixture
def working(tmp_path: Path) -> Iterator[Broker]:
    """Small segments, so that folds and deletions go on all the time."""
    settings = tmp_path / "penstock.toml"
    settings.write_text(SMALL_SEGMENTS)
    with Broker(tmp_path / "data", "--config", str(settings)) as broker:
        yield broker


class Traffic:
    """Publishes numbers to a fanout of queues, consumes them from the first one, and declares, until the block ends.

    `confirmed_count` numbers were confirmed.
    """

    def __init__(self, broker: Broker) -> None:
        self.confirmed_count = 0
        self._broker = broker
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._publish, self._consume, self._declare)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _publish(self) -> None:
        with penstock.connect(self._broker.uri()) as connection:
            while not self._is_over.is_set():
                bodies = [str(self.confirmed_count + step).encode() for step in range(1, 201)]
                connection.publish_many(bodies, exchange="all")
                self.confirmed_count += len(bodies)

    def _consume(self) -> None:
        with penstock.connect(self._broker.uri()) as connection:
            while not self._is_over.is_set():
                for message in connection.consume(QUEUES[0], prefetch=500, idle_timeout=0.1):
                    message.ack()
                    if self._is_over.is_set():
                        return

    def _declare(self) -> None:
        with penstock.connect(self._broker.uri()) as connection:
            number = 0
            while not self._is_over.is_set():
                connection.declare_queue(f"late-{number:06}")
                connection.publish(str(number).encode(), routing_key=f"late-{number:06}")
                number += 1


def prepare(broker: Broker) -> None:
    with penstock.connect(broker.uri()) as connection:
        connection.declare_exchange("all", "fanout")
        for queue in QUEUES:
            connection.declare_queue(queue)
            connection.bind_queue(queue, "all")
        connection.admin.create_vhost("other")
        connection.admin.put_user("ada", "secret", ["monitoring"])


def wait_for(traffic: Traffic, count: int) -> int:
    pause = threading.Event()
    while traffic.confirmed_count < count:
        pause.wait(0.01)
    return traffic.confirmed_count


@pytest.mark.slow
def test_a_backup_under_load_holds_all_that_was_confirmed_before_and_agrees_with_itself(
    working: Broker, tmp_path: Path
) -> None:
    prepare(working)
    copies = [tmp_path / "copy-1", tmp_path / "copy-2", tmp_path / "copy-3.tar", tmp_path / "copy-4.tar"]
    before: list[int] = []
    with Traffic(working) as traffic, penstock.connect(working.uri()) as root:
        for number, copy in enumerate(copies):
            before.append(wait_for(traffic, (number + 1) * 5_000))
            if copy.suffix:
                copy.write_bytes(b"".join(root.admin.download_backup(root.admin.begin_backup())))
            else:
                assert root.admin.backup(str(copy)) > 0
    working.kill()

    for copy, count in zip(copies, before, strict=True):
        assert_whole(copy, tmp_path / f"restored-{copy.name}", count)


def assert_whole(copy: Path, data_dir: Path, confirmed_before: int) -> None:
    restore(copy, data_dir)
    verify(data_dir)
    with Broker(data_dir) as broker, penstock.connect(broker.uri()) as connection:
        assert [vhost.name for vhost in connection.admin.list_vhosts()] == ["/", "other"]
        assert {user.name for user in connection.admin.list_users()} == {"guest", "ada"}
        counts = {queue.name: queue.ready_count for queue in connection.admin.list_queues()}
        untouched = {counts[queue] for queue in QUEUES[1:]}
        # Each log is copied as of one point in time: every message of the fanout is in all queues of a log or in none.
        assert len(untouched) <= shards_of_this_run()
        assert min(untouched) >= confirmed_before
        count = counts[QUEUES[1]]
        bodies = [message.body for message in connection.consume(QUEUES[1], auto_ack=True, idle_timeout=4)]
        assert bodies == [str(number + 1).encode() for number in range(count)]
        assert counts[QUEUES[0]] <= max(untouched)
        late = sorted(name for name in counts if name.startswith("late-"))
        assert late == [f"late-{number:06}" for number in range(len(late))]
        # Each is declared, then published to, then the next is declared: only the last one may lack its message.
        assert [counts[name] for name in late[:-1]] == [1] * (len(late) - 1)
        connection.publish(b"goes on", "all", mandatory=True)


def restore(copy: Path, data_dir: Path) -> None:
    command = [penstock_command(), "restore", str(copy), "--data-dir", str(data_dir), "--output", "json"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["vhosts"] == ["/", "other"]


def verify(data_dir: Path) -> None:
    for vhost in data_dir.glob("*/.vhost"):
        command = [penstock_command(), "log", "verify", str(vhost.parent)]
        done = subprocess.run(command, capture_output=True, check=False, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_restoring_over_something_is_refused_in_one_line(working: Broker, tmp_path: Path) -> None:
    copy, target = tmp_path / "copy", tmp_path / "target"
    with penstock.connect(working.uri()) as connection:
        connection.admin.backup(str(copy))
    target.mkdir()
    (target / "note").write_text("mine")

    command = [penstock_command(), "restore", str(copy), "--data-dir", str(target)]
    done = subprocess.run(command, capture_output=True, check=False, text=True)

    assert done.returncode == 1
    assert done.stderr == f"penstock: directory '{target}' is not empty; name an empty or a new directory\n"
    assert [path.name for path in target.iterdir()] == ["note"]


def test_what_happens_after_a_backup_does_not_reach_it(working: Broker, tmp_path: Path) -> None:
    prepare(working)
    copy = tmp_path / "copy"
    with penstock.connect(working.uri()) as connection:
        connection.publish_many([b"x" * 1_000] * 2_000, exchange="all")
        connection.admin.backup(str(copy))
        files = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
        for queue in QUEUES:
            connection.purge_queue(queue)
            connection.delete_queue(queue)
        connection.declare_queue("later")
        connection.publish_many([b"y" * 1_000] * 2_000, routing_key="later")

    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == files


def test_a_backup_that_is_cut_short_by_others_does_the_broker_no_harm(working: Broker, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    bodies = [str(number).encode() * 100 for number in range(2_000)]
    with penstock.connect(working.uri()) as connection:
        connection.declare_queue("work")
        connection.publish_many(bodies, routing_key="work")
        connection.admin.backup(str(copy))
        for path in copy.rglob("*"):
            if path.is_file():
                assert path.stat().st_nlink == 1
                path.write_bytes(b"")

        assert [message.body for message in connection.consume("work", auto_ack=True, idle_timeout=4)] == bodies


def test_a_backup_that_finds_no_room_names_the_file_leaves_nothing_and_the_broker_goes_on(
    working: Broker, tmp_path: Path, small_disk: Callable[..., Path]
) -> None:
    full = small_disk(tmp_path / "full", kilobytes=256)
    with penstock.connect(working.uri()) as connection:
        connection.declare_queue("work")
        connection.publish_many([b"x" * 1_000] * 1_000, routing_key="work")
        with pytest.raises(
            penstock.PenstockError, match=rf"cannot (write|create) {full}/copy/\S+: No space left on device"
        ):
            connection.admin.backup(str(full / "copy"))
        assert list(full.iterdir()) == []
        connection.publish(b"more", routing_key="work")
        assert connection.admin.backup(str(tmp_path / "copy")) > 1_000_000


def test_a_backup_is_for_administrators_and_outside_the_data(broker: Broker, tmp_path: Path) -> None:
    with penstock.connect(broker.uri()) as root:
        root.admin.put_user("eve", "eve", [])
        with pytest.raises(penstock.PenstockError, match="data directory"):
            root.admin.backup(str(broker.data_dir / "copy"))
        with pytest.raises(penstock.PenstockError, match="absolute"):
            root.admin.backup("copy")
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "file").write_text("mine")
        with pytest.raises(penstock.PenstockError, match="is not empty"):
            root.admin.backup(str(tmp_path / "full"))
        assert [path.name for path in (tmp_path / "full").iterdir()] == ["file"]
        with penstock.connect(broker.uri(user="eve", password="eve")) as eve, pytest.raises(penstock.PenstockError):
            eve.admin.backup(str(tmp_path / "copy"))
        root.admin.delete_user("eve")
    assert not (tmp_path / "copy").exists()
