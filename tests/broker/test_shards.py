"""A virtual host with several shards: spread queues, fan-outs, restarts, kills, growth, backups, verification."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.client.errors import PreconditionFailedError
from penstock.storage import directory_name
from support import Broker
from support.broker import penstock_command

QUEUES = [f"q{number}" for number in range(6)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def alone(data: Path) -> Iterator[Broker]:
    with Broker(data, shards=3) as broker:
        yield broker


def logs(data: Path, vhost: str = "/") -> list[Path]:
    """Return the folders of further shards."""
    return sorted((data / directory_name(vhost) / "logs").glob("*"))


def run(*arguments: str) -> str:
    done = subprocess.run([penstock_command(), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def declare_all(connection: penstock.Connection) -> None:
    connection.declare_exchange("all", "fanout")
    for name in QUEUES:
        connection.declare_queue(name)
        connection.bind_queue(name, "all")


def drained(connection: penstock.Connection, name: str) -> list[bytes]:
    """Take all messages of a queue."""
    return [message.body for message in connection.consume(name, auto_ack=True, idle_timeout=4)]


def test_a_fan_out_over_shards_is_confirmed_and_kept_over_a_kill(alone: Broker, data: Path) -> None:
    sent = [b"%d" % number for number in range(1_000)]
    with penstock.connect(alone.uri()) as connection:
        declare_all(connection)
        assert connection.admin.list_vhosts()[0].shards == 3
        connection.publish_many(sent, exchange="all")
    assert [path.name for path in logs(data)] == ["1", "2"]
    alone.kill()
    alone.start()

    with penstock.connect(alone.uri()) as connection:
        assert connection.admin.list_vhosts()[0].shards == 3
        assert [connection.admin.get_queue(name).ready_count for name in QUEUES] == [1_000] * 6
        assert sorted(drained(connection, "q1")) == sorted(sent)
        connection.publish_many([b"more"], exchange="all")
    alone.restart()

    with penstock.connect(alone.uri()) as connection:
        counts = {name: connection.admin.get_queue(name).ready_count for name in QUEUES}
    assert counts == {name: 1 if name == "q1" else 1_001 for name in QUEUES}


def test_a_named_producer_is_heard_once_in_every_shard(alone: Broker) -> None:
    rows = [b"%d" % number for number in range(1, 61)]
    with penstock.connect(alone.uri()) as connection:
        connection.declare_stream("parts", partitions=6)
        with connection.stream("parts").publisher("import") as publisher:
            for sequence, row in enumerate(rows, 1):
                publisher.publish(row, key=row, sequence=sequence)
    alone.kill()
    alone.start()

    with penstock.connect(alone.uri()) as connection:
        with connection.stream("parts").publisher("import") as publisher:
            assert publisher.highest_sequence == 60
            for sequence, row in enumerate(rows, 1):
                publisher.publish(row, key=row, sequence=sequence)
        found = [message.body for message in connection.stream("parts").read("first", until="next")]
    assert sorted(found) == sorted(rows)


def test_shards_are_made_and_added_by_the_command_line(alone: Broker, data: Path) -> None:
    uri = ("--uri", alone.uri())
    assert "added" in run("vhost", "add", "shop", "--shards", "2", *uri)
    with penstock.connect(alone.uri()) as root:
        root.admin.set_permission("guest", "shop", configure=".*", write=".*", read=".*")
    with penstock.connect(alone.uri("shop")) as connection:
        declare_all(connection)
        connection.publish_many([b"a"], exchange="all")
        assert "vhost 'shop' has 4 shards" in run("vhost", "set-shards", "shop", "4", *uri)
        connection.declare_queue("late")
        connection.publish_many([b"b"] * 2, exchange="all")
        refused = subprocess.run(
            [penstock_command(), "vhost", "set-shards", "shop", "3", *uri], capture_output=True, text=True, check=False
        )
        assert refused.returncode != 0
        assert "has 4 shards and cannot have 3: a queue stays in its shard" in refused.stderr
    listed = {each["name"]: each["shards"] for each in json.loads(run("vhost", "list", *uri, "--output", "json"))}
    assert listed == {"/": 3, "shop": 4}
    assert [path.name for path in logs(data, "shop")] == ["1", "2", "3"]
    alone.kill()
    alone.start()

    with penstock.connect(alone.uri("shop")) as connection:
        assert {connection.admin.get_queue(name).ready_count for name in QUEUES} == {3}
        assert "x-penstock-shard" not in connection.admin.get_queue("q1").arguments
    with penstock.connect(alone.uri()) as root:
        root.admin.delete_vhost("shop")
    assert not (data / directory_name("shop")).exists()


def test_definitions_have_the_shards_of_a_vhost(alone: Broker, tmp_path: Path) -> None:
    with penstock.connect(alone.uri()) as connection:
        declare_all(connection)
        exported = connection.admin.export_definitions()
    assert json.loads(exported)["vhosts"] == [{"name": "/", "shards": 3}]
    changed = exported.replace(b'"/"', b'"shop"')
    with Broker(tmp_path / "other", shards=1) as other, penstock.connect(other.uri()) as connection:
        connection.admin.import_definitions(changed)
        found = {vhost.name: vhost.shards for vhost in connection.admin.list_vhosts()}
        without = json.dumps({"vhosts": [{"name": "one"}, {"name": "four", "shards": 4}]})
        connection.admin.import_definitions(without, shards=2)
        found |= {vhost.name: vhost.shards for vhost in connection.admin.list_vhosts()}
        with pytest.raises(penstock.InvalidArgumentError, match="cannot have 65 shards"):
            connection.admin.import_definitions(without, shards=65)
    assert found == {"/": 1, "shop": 3, "one": 2, "four": 4}


def test_a_backup_has_all_shards(alone: Broker, data: Path, tmp_path: Path) -> None:
    sent = [b"%d" % number for number in range(100)]
    with penstock.connect(alone.uri()) as connection:
        declare_all(connection)
        connection.publish_many(sent, exchange="all")
        connection.admin.backup(str(tmp_path / "copy"))
    alone.stop()
    run("restore", str(tmp_path / "copy"), "--data-dir", str(tmp_path / "restored"))

    with Broker(tmp_path / "restored", shards=1) as restored, penstock.connect(restored.uri()) as connection:
        assert connection.admin.list_vhosts()[0].shards == 3
        assert [connection.admin.get_queue(name).ready_count for name in QUEUES] == [100] * 6
        assert sorted(drained(connection, "q2")) == sorted(sent)


def test_a_start_without_one_of_its_shards_is_refused(alone: Broker, data: Path, tmp_path: Path) -> None:
    with penstock.connect(alone.uri()) as connection:
        declare_all(connection)
        connection.publish_many([b"a"], exchange="all")
    alone.stop()
    shutil.move(logs(data)[1], tmp_path / "away")

    with pytest.raises(Exception, match="logs/2"):
        alone.start()

    shutil.move(tmp_path / "away", data / directory_name("/") / "logs" / "2")
    alone.start()
    with penstock.connect(alone.uri()) as connection:
        assert {connection.admin.get_queue(name).ready_count for name in QUEUES} == {1}


def test_shards_in_each_others_folders_are_refused_and_reported(alone: Broker, data: Path, tmp_path: Path) -> None:
    with penstock.connect(alone.uri()) as connection:
        declare_all(connection)
        connection.publish_many([b"a"], exchange="all")
    alone.stop()
    first, second = logs(data)

    def exchange() -> None:
        first.rename(tmp_path / "away")
        second.rename(first)
        (tmp_path / "away").rename(second)

    exchange()
    with pytest.raises(Exception, match="it is of shard 2, and this log is shard 1"):
        alone.start()
    verified = subprocess.run(
        [penstock_command(), "log", "verify", str(data)], capture_output=True, text=True, check=False
    )
    assert verified.returncode != 0
    assert "it is of shard 2, and this log is shard 1" in verified.stderr
    assert "it is of shard 1, and this log is shard 2" in verified.stderr

    exchange()
    alone.start()
    with penstock.connect(alone.uri()) as connection:
        assert {connection.admin.get_queue(name).ready_count for name in QUEUES} == {1}


def test_the_logs_of_shards_are_verified_and_their_corruption_is_named(alone: Broker, data: Path) -> None:
    with penstock.connect(alone.uri()) as connection:
        declare_all(connection)
        connection.publish_many([b"a message to find"] * 20, exchange="all")
    alone.stop()
    assert json.loads(run("log", "verify", str(data), "--output", "json"))
    segment = next(path for path in sorted(logs(data)[0].glob("msgs.*")) if b"to find" in path.read_bytes())
    content = bytearray(segment.read_bytes())
    content[content.index(b"to find")] ^= 1
    segment.write_bytes(content)

    verified = subprocess.run(
        [penstock_command(), "log", "verify", str(data)], capture_output=True, text=True, check=False
    )

    assert verified.returncode != 0
    assert f"logs/1/{segment.name}" in verified.stdout + verified.stderr


def test_a_vhost_gets_no_fewer_shards_by_the_client(alone: Broker) -> None:
    with penstock.connect(alone.uri()) as connection, pytest.raises(PreconditionFailedError, match="cannot have 1"):
        connection.admin.set_vhost_shards("/", 1)
