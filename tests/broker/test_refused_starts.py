"""Refused starts: missing or changed files beside the logs never cost a message.

A failed start takes nothing away from the next one.
"""

import json
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

import penstock
from support import Broker, BrokerError
from support.broker import penstock_command

pytestmark = pytest.mark.slow
COUNT = 100
RECORD_LENGTH = 4
SEGMENT_HEADER = 64


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Broker]:
    """Return a stopped broker with messages in two queues, one of them with an own log."""
    with Broker(tmp_path / "data", shards=1) as broker:
        with penstock.connect(broker.uri(), durability="disk") as connection:
            connection.declare_queue("shared")
            connection.declare_queue("own", arguments={"x-dedicated": True})
            for queue in ("shared", "own"):
                connection.publish_many([b"%d" % number for number in range(COUNT)], routing_key=queue)
        broker.stop()
        yield broker


def folder(broker: Broker) -> Path:
    (found,) = (path.parent for path in broker.data_dir.glob("*/.vhost"))
    return found


def flip(path: Path) -> None:
    """Change the number of a queue: every frame can still be read."""
    content = bytearray(path.read_bytes())
    content[content.index(b"x-penstock-idI") + len(b"x-penstock-idI") + 3] ^= 0x10
    path.write_bytes(content)


def cut_a_frame(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: content.rindex(b"\xce", 0, -1) + 1])


@pytest.mark.parametrize("harm", [flip, cut_a_frame, Path.unlink], ids=["flipped", "cut", "missing"])
def test_definitions_that_are_not_whole_cost_no_message(own: Broker, harm: Callable[[Path], None]) -> None:
    definitions = folder(own) / "definitions.amqp"
    whole = definitions.read_bytes()
    harm(definitions)

    for _ in range(2):
        with pytest.raises(BrokerError, match=r"definitions\.amqp' is (corrupt (at|before) byte|missing)"):
            own.start()

    definitions.write_bytes(whole)
    with own, penstock.connect(own.uri()) as connection:
        assert {queue.name: queue.ready_count for queue in connection.admin.list_queues()} == {
            "shared": COUNT,
            "own": COUNT,
        }


def test_a_lost_proof_refuses_the_start_until_somebody_accepts_what_is_there(own: Broker) -> None:
    (folder(own) / "definitions.crc").unlink()
    with pytest.raises(BrokerError, match=r"definitions\.crc' is missing.*penstock definitions repair"):
        own.start()

    done = subprocess.run(
        [penstock_command(), "definitions", "repair", str(folder(own)), "--yes"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "'shared', 'own'" in done.stdout
    with own, penstock.connect(own.uri()) as connection:
        assert {queue.name: queue.ready_count for queue in connection.admin.list_queues()} == {
            "shared": COUNT,
            "own": COUNT,
        }


@pytest.mark.parametrize(
    "gone",
    ["msgs.*", "[mc]*.[0-9]*", "[mc]*.*[0-9]", "shards/*/msgs.*"],
    ids=["segments", "log", "log-but-indexes", "own-segments"],
)
def test_a_log_that_vanished_is_not_begun_anew(own: Broker, gone: str) -> None:
    segments = list(folder(own).glob(gone))
    there = set(folder(own).rglob("*"))
    for path in segments:
        path.rename(own.data_dir / path.name)

    with pytest.raises(BrokerError, match="no segment"):
        own.start()

    for path in segments:
        (own.data_dir / path.name).rename(path)
    assert there <= set(folder(own).rglob("*"))
    with own, penstock.connect(own.uri()) as connection:
        assert {queue.name: queue.ready_count for queue in connection.admin.list_queues()} == {
            "shared": COUNT,
            "own": COUNT,
        }


@pytest.mark.parametrize("gone", [["users.json"], ["users.json", "vhosts.json"]])
def test_files_that_vanished_do_not_make_a_new_broker(own: Broker, gone: list[str]) -> None:
    for name in gone:
        (own.data_dir / name).rename(own.data_dir / f"{name}.away")

    with pytest.raises(BrokerError, match=r"\.json' is missing"):
        own.start()

    assert [name for name in gone if (own.data_dir / name).exists()] == []
    for name in gone:
        (own.data_dir / f"{name}.away").rename(own.data_dir / name)
    own.start()
    own.stop()


def test_the_first_user_is_made_again_for_whoever_takes_the_file_from_the_list(own: Broker) -> None:
    (own.data_dir / "users.json").unlink()
    node = own.data_dir / "node.json"
    content = json.loads(node.read_text())
    content["files"].remove("users.json")
    node.write_text(json.dumps(content))

    with own, penstock.connect(own.uri()) as connection:
        assert [user.name for user in connection.admin.list_users()] == ["guest"]
        assert len(connection.admin.list_queues()) == 2


def test_one_vhost_that_is_refused_leaves_the_logs_of_the_others_as_they_were(own: Broker) -> None:
    with own, penstock.connect(own.uri()) as connection:
        connection.admin.create_vhost("second")
        own.stop()
    (second,) = (path.parent for path in own.data_dir.glob("*/.vhost") if path.read_text() == "second")
    (second / "definitions.amqp").unlink()
    before = files(own.data_dir)

    with pytest.raises(BrokerError, match=r"definitions\.amqp' is missing"):
        own.start()

    assert files(own.data_dir) == before


def files(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file() and path.name != ".lock"}


@contextmanager
def without_certificate(broker: Broker) -> Iterator[Broker]:
    """Make a start fail before it reads any definitions."""
    settings = broker.data_dir.parent / "bad.toml"
    missing = settings.with_name("missing.pem")
    settings.write_text(f'tls_certificate = "{missing}"\ntls_key = "{missing}"\n')
    yield Broker(broker.data_dir, "--config", str(settings))


@contextmanager
def without_synced(broker: Broker) -> Iterator[Broker]:
    """Make a start fail while it opens the log: a directory has the name of a file that it reads."""
    synced = folder(broker) / "synced"
    synced.rename(broker.data_dir / "synced")
    synced.mkdir()
    yield Broker(broker.data_dir)
    synced.rmdir()
    (broker.data_dir / "synced").rename(synced)


@pytest.mark.parametrize(
    ("failing", "reason"),
    [(without_certificate, "missing.pem"), (without_synced, "cannot be opened.*synced")],
    ids=["certificate", "log"],
)
def test_a_start_that_fails_after_a_power_failure_does_not_let_numbers_repeat(
    tmp_path: Path, failing: Callable[[Broker], AbstractContextManager[Broker]], reason: str
) -> None:
    with Broker(tmp_path / "data", shards=1) as own:
        with penstock.connect(own.uri(), durability="os") as connection:
            connection.declare_queue("letters")
            connection.publish_many([b"before-%02d" % number for number in range(20)], routing_key="letters")
            seen = [message.sequence for message in connection.consume("letters", idle_timeout=4)]
        own.kill()
        lose_power(own, b"before-10")
        with failing(own) as bad, pytest.raises(BrokerError, match=reason):
            bad.start()

        own.start()
        with penstock.connect(own.uri()) as connection:
            connection.publish(b"after", routing_key="letters")
            got = {message.body: message.sequence for message in connection.consume("letters", idle_timeout=4)}

    assert len(seen) == 20
    assert got[b"after"] > max(seen)


def lose_power(broker: Broker, body: bytes) -> None:
    """Simulate another boot, and zeros from the record of that body on: blocks that never reached the disk."""
    path = next(path for path in folder(broker).glob("msgs.*[0-9]") if body in path.read_bytes())
    content, at = path.read_bytes(), SEGMENT_HEADER
    while body not in content[at : at + (length := int.from_bytes(content[at : at + RECORD_LENGTH], "little"))]:
        assert length > 0
        at += length
    path.write_bytes(content[:at] + bytes(len(content) - at))
    node = broker.data_dir / "node.json"
    node.write_text(json.dumps(json.loads(node.read_text()) | {"boot_id": str(uuid.uuid4())}))
