"""Queues with an own log: declared, written, read, kept over restarts and kills, backed up, deleted."""

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import penstock
from penstock.client.errors import PenstockError
from support import Broker
from support.broker import penstock_command
from support.waiting import eventually

SMALL_SEGMENTS = """segment_bytes_min = 65536
segment_bytes_max = 262144
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def options(tmp_path: Path) -> tuple[str, ...]:
    settings = tmp_path / "penstock.toml"
    settings.write_text(SMALL_SEGMENTS)
    return ("--config", str(settings))


@pytest.fixture
def alone(data: Path, options: tuple[str, ...]) -> Iterator[Broker]:
    with Broker(data, *options) as broker:
        yield broker


def logs(data: Path) -> list[Path]:
    """Return the folders of own logs."""
    return sorted(path for path in data.glob("*/shards/*") if path.is_dir())


def read(connection: penstock.Connection, name: str) -> list[bytes]:
    return [message.body for message in connection.stream(name).read("first", until="next")]


def bodies(count: int, size: int = 10) -> list[bytes]:
    return [b"%0*d" % (size, number) for number in range(count)]


def publish_to_all(connection: penstock.Connection, sent: list[bytes]) -> None:
    """Declare a stream and a queue with own logs, and one without, behind one exchange; publish."""
    connection.declare_exchange("all", "fanout")
    connection.declare_stream("hot", dedicated=True)
    connection.declare_queue("work", arguments={"x-dedicated": True})
    connection.declare_queue("plain")
    for queue in ("hot", "work", "plain"):
        connection.bind_queue(queue, "all")
    connection.publish_many(sent, exchange="all")


def check_all(connection: penstock.Connection, sent: list[bytes]) -> None:
    assert read(connection, "hot") == sent
    for queue in ("work", "plain"):
        assert connection.admin.get_queue(queue).ready_count == len(sent)


def test_a_message_reaches_queues_in_several_logs(alone: Broker, data: Path) -> None:
    sent = bodies(500)
    with penstock.connect(alone.uri()) as connection:
        publish_to_all(connection, sent)
        check_all(connection, sent)

        taken = [message.body for message in connection.consume("work", auto_ack=True, idle_timeout=4)]
        got = connection.get("plain", auto_ack=True)

        assert taken == sent
        assert got is not None
        assert got.body == sent[0]
        assert connection.admin.status().ready_count == 500 - 1, "messages of the stream are not counted"
    assert len(logs(data)) == 2


def test_what_is_in_a_log_of_its_own_is_there_after_a_stop(alone: Broker) -> None:
    sent = bodies(3_000, 100)
    with penstock.connect(alone.uri()) as connection:
        publish_to_all(connection, sent)
        connection.stream("hot").store("readers", 10)

    alone.stop()
    alone.start()

    with penstock.connect(alone.uri()) as connection:
        check_all(connection, sent)
        assert [group.offset for group in connection.stream("hot").groups()] == [10]
        connection.publish(b"more", exchange="all")
        assert read(connection, "hot")[-1] == b"more"
        assert connection.admin.get_queue("hot").arguments["x-dedicated"] is True


def test_what_was_confirmed_is_there_after_a_kill(alone: Broker) -> None:
    sent: list[bytes] = []
    with penstock.connect(alone.uri()) as connection:
        publish_to_all(connection, [])
    for number in range(3):
        more = [b"%d-%d" % (number, each) for each in range(2_000)]
        with penstock.connect(alone.uri()) as connection:
            connection.publish_many(more, exchange="all")
            sent += more
        alone.kill()
        alone.start()

    with penstock.connect(alone.uri()) as connection:
        check_all(connection, sent)


class Publishing(threading.Thread):
    """Publishes to all queues until stopped, whatever happens to the broker; `confirmed` are the confirmed ones."""

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self.confirmed: list[bytes] = []
        self.is_over = threading.Event()
        self._broker = broker

    def has_confirmed(self, least: int) -> bool:
        return len(self.confirmed) >= least

    def run(self) -> None:
        with penstock.connect(self._broker.uri()) as connection:
            while not self.is_over.is_set():
                batch = [b"%d" % (len(self.confirmed) + each) for each in range(100)]
                connection.publish_many(batch, exchange="all")
                self.confirmed += batch


def test_kills_under_load_take_nothing_that_all_logs_were_said_to_have(alone: Broker) -> None:
    with penstock.connect(alone.uri()) as connection:
        publish_to_all(connection, [])
    publishing = Publishing(alone)
    publishing.start()
    for round_number in (1, 2, 3):
        least = 1_000 * round_number
        eventually(partial(publishing.has_confirmed, least), True, seconds_max=120)
        alone.kill()
        alone.start()
    publishing.is_over.set()
    publishing.join()

    with penstock.connect(alone.uri()) as connection:
        stored = {"hot": read(connection, "hot")}
        for queue in ("work", "plain"):
            stored[queue] = [message.body for message in connection.consume(queue, auto_ack=True, idle_timeout=5)]
    for found in stored.values():
        assert set(publishing.confirmed) <= set(found)


def test_a_log_goes_with_its_queue_and_not_with_a_restart(alone: Broker, data: Path) -> None:
    with penstock.connect(alone.uri()) as connection:
        publish_to_all(connection, bodies(100))
        connection.declare_stream("parts", partitions=3, dedicated=True)
        assert len(logs(data)) == 5

        assert connection.delete_queue("work") == 100
        connection.delete_stream("parts")

        eventually(lambda: len(logs(data)), 1)
        connection.publish(b"after", exchange="all")
        assert read(connection, "hot")[-1] == b"after"
        connection.declare_queue("work")
        assert connection.admin.get_queue("work").ready_count == 0
    alone.kill()
    alone.start()
    assert len(logs(data)) == 1


def test_a_log_that_a_crash_left_of_a_deleted_queue_goes_at_the_next_start(alone: Broker, data: Path) -> None:
    with penstock.connect(alone.uri()) as connection:
        connection.declare_stream("gone", dedicated=True)
        connection.stream("gone").publish_many(bodies(10))
    [log] = logs(data)
    copy = data.parent / "copy"
    shutil.copytree(log, copy)
    with penstock.connect(alone.uri()) as connection:
        connection.delete_queue("gone")
    alone.kill()
    shutil.copytree(copy, log)
    shutil.copytree(copy, log.with_name(f"{log.name}.deleted"), dirs_exist_ok=True)

    alone.start()

    assert logs(data) == []
    with penstock.connect(alone.uri()) as connection:
        assert connection.admin.list_queues() == []


def test_a_queue_whose_log_cannot_be_made_is_refused_alone_and_leaves_nothing(alone: Broker, data: Path) -> None:
    """Earlier its virtual host took no more commands, and the definitions had it."""
    (folder,) = (path.parent for path in data.glob("*/definitions.amqp"))
    (folder / "shards").touch()
    with penstock.connect(alone.uri()) as connection:
        with pytest.raises(PenstockError):
            connection.declare_stream("new", partitions=2, dedicated=True)
        connection.declare_queue("jobs")
        connection.publish(b"confirmed", routing_key="jobs")
    alone.kill()
    (folder / "shards").unlink()

    alone.start()

    with penstock.connect(alone.uri()) as connection:
        assert [queue.name for queue in connection.admin.list_queues()] == ["jobs"]
        assert connection.admin.get_queue("jobs").ready_count == 1
        connection.declare_stream("new", dedicated=True)
        connection.stream("new").publish(b"first")
        assert read(connection, "new") == [b"first"]
    assert len(logs(data)) == 1


def test_each_log_keeps_to_the_limits_of_its_stream(alone: Broker) -> None:
    with penstock.connect(alone.uri()) as connection:
        connection.declare_stream("small", max_bytes=100_000, dedicated=True)
        connection.declare_stream("large", dedicated=True)
        for name in ("small", "large"):
            connection.stream(name).publish_many(bodies(20_000, 100))

        eventually(lambda: connection.stream("small").offsets()[0].bytes < 1_000_000, True)
        assert connection.stream("large").offsets()[0].message_count == 20_000


def test_a_producer_is_remembered_in_the_log_of_the_stream(alone: Broker) -> None:
    rows = bodies(100)
    with penstock.connect(alone.uri()) as connection:
        connection.declare_stream("imported", dedicated=True)
        with connection.stream("imported").publisher("import") as publisher:
            publisher.publish_many(rows[:60])
    alone.kill()
    alone.start()

    with penstock.connect(alone.uri()) as connection:
        with connection.stream("imported").publisher("import") as publisher:
            assert publisher.last_sequence == 60
            publisher.publish_many(rows[50:], sequence=51)
        assert read(connection, "imported") == rows


@pytest.mark.parametrize("native", [True, False])
def test_a_producer_writes_to_the_logs_of_all_partitions_each_row_once_through_kills(
    alone: Broker, native: bool
) -> None:
    rows = [(b"%d" % number, b"row %d" % number) for number in range(300)]
    with penstock.connect(alone.uri(), native=native) as connection:
        connection.declare_stream("imported", partitions=3, dedicated=True)
        with connection.stream("imported").publisher("import") as publisher:
            publisher.publish_keyed(rows[:200])
            assert publisher.last_sequence == 200
    alone.kill()
    alone.start()

    with penstock.connect(alone.uri(), native=native) as connection:
        with connection.stream("imported").publisher("import") as publisher:
            done = publisher.last_sequence
            assert 0 < done <= publisher.highest_sequence == 200
            publisher.publish_keyed(rows[done:], sequence=done + 1)
            assert publisher.last_sequence == 300
        assert sorted(read(connection, "imported")) == sorted(body for _, body in rows)
        with connection.stream("imported").publisher("import") as publisher:
            assert publisher.last_sequence == publisher.highest_sequence == 300


@pytest.mark.parametrize("name", ["backup", "backup.tar"])
def test_a_backup_holds_the_logs_and_a_broker_made_of_it_has_them(
    alone: Broker, tmp_path: Path, options: tuple[str, ...], name: str
) -> None:
    sent = bodies(3_000, 100)
    with penstock.connect(alone.uri()) as connection:
        publish_to_all(connection, sent)
        if name == "backup":
            connection.admin.backup(str(tmp_path / name))
        else:
            archive = connection.admin.download_backup(connection.admin.begin_backup())
            (tmp_path / name).write_bytes(b"".join(archive))
        connection.publish(b"later", exchange="all")

    restore = [penstock_command(), "restore", str(tmp_path / name), "--data-dir", str(tmp_path / "restored")]
    subprocess.run(restore, check=True, capture_output=True, timeout=120)

    with Broker(tmp_path / "restored", *options) as restored, penstock.connect(restored.uri()) as connection:
        check_all(connection, sent)


def test_verify_tells_of_corruption_in_a_log_of_its_own(alone: Broker, data: Path) -> None:
    with penstock.connect(alone.uri()) as connection:
        connection.declare_stream("hot", dedicated=True)
        connection.stream("hot").publish_many(bodies(100, 100))
    alone.stop()
    [log] = logs(data)
    verify = [penstock_command(), "log", "verify", str(log.parent.parent), "--output", "json"]
    whole = subprocess.run(verify, check=True, capture_output=True, timeout=120)
    files = [segment["file"] for segment in json.loads(whole.stdout)]
    assert any(file.startswith(f"shards/{log.name}/msgs.") for file in files)

    largest = max(log.glob("msgs.*"), key=lambda path: path.read_bytes().count(b"0" * 60))
    content = bytearray(largest.read_bytes())
    content[content.index(b"0" * 60)] ^= 0xFF
    largest.write_bytes(content)

    corrupt = subprocess.run(verify, check=False, capture_output=True, text=True, timeout=120)
    assert corrupt.returncode == 1
    assert f"shards/{log.name}/{largest.name} is corrupt" in corrupt.stderr
    assert "queue 'hot'" in corrupt.stderr


def test_definitions_carry_the_argument(alone: Broker, data: Path) -> None:
    with penstock.connect(alone.uri()) as connection:
        connection.declare_stream("hot", dedicated=True)
        document = connection.admin.export_definitions("/")
        connection.delete_queue("hot")
        eventually(lambda: len(logs(data)), 0)

        connection.admin.import_definitions(document, "/")

        assert connection.admin.get_queue("hot").arguments["x-dedicated"] is True
        assert len(logs(data)) == 1


def test_the_shell_declares_a_stream_with_a_log_of_its_own(alone: Broker, data: Path) -> None:
    declare = [penstock_command(), "stream", "declare", "hot", "--dedicated", "--uri", alone.uri()]
    subprocess.run(declare, check=True, capture_output=True, timeout=120)

    assert len(logs(data)) == 1
    with penstock.connect(alone.uri()) as connection, pytest.raises(penstock.PreconditionFailedError):
        connection.declare_stream("hot")


def test_staged_batches_go_to_a_log_of_its_own_each_once_through_kills(alone: Broker) -> None:
    with penstock.connect(alone.uri()) as connection:
        connection.declare_stream("hot", dedicated=True)
        stage = connection.stage("nightly", stream="hot")
        assert stage.publish(1, [stage.stage(1, bodies(3))]).stored == 3

    alone.kill()
    alone.start()

    with penstock.connect(alone.uri()) as connection:
        stage = connection.stage("nightly", stream="hot")
        assert stage.publish(1, [stage.stage(1, bodies(3))]).was_decided
        with pytest.raises(penstock.PreconditionFailedError, match="not the one that was published"):
            stage.publish(1, [stage.stage(1, [b"other"])])
        assert stage.publish(2, [stage.stage(2, [b"second"])]).stored == 1
        assert read(connection, "hot") == [*bodies(3), b"second"]


def test_a_stage_publishes_into_several_logs_each_row_once(alone: Broker) -> None:
    with penstock.connect(alone.uri()) as connection:
        connection.declare_exchange("all", "fanout")
        for queue, is_dedicated in (("work", True), ("plain", False)):
            connection.declare_queue(queue, arguments={"x-dedicated": is_dedicated})
            connection.bind_queue(queue, "all")
        stage = connection.stage("nightly", exchange="all")
        attempt = stage.stage(1, [b"a", b"b"])

        assert stage.publish(1, [attempt]).stored == 2
        assert stage.publish(1, [attempt]).was_decided
        for queue in ("work", "plain"):
            assert connection.admin.get_queue(queue).ready_count == 2


def test_leases_of_a_queue_with_a_log_of_its_own_stand_after_a_kill(alone: Broker) -> None:
    with penstock.connect(alone.uri()) as connection:
        connection.declare_queue("work", arguments={"x-dedicated": True})
        connection.publish_many(bodies(10), routing_key="work")
        assert connection.reserve_lease("work", "copier", 1, messages_max=4).lease.message_count == 4

    alone.kill()
    alone.start()

    with penstock.connect(alone.uri()) as connection:
        assert connection.reserve_lease("work", "copier", 1, messages_max=4).lease.message_count == 4
        found = connection.admin.get_queue("work")
        assert (found.ready_count, found.unacked_count) == (6, 4)
        connection.ack_leases("work", "copier", 1)
        found = connection.admin.get_queue("work")
        assert (found.ready_count, found.unacked_count) == (6, 0)
