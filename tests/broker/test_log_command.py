"""`penstock log` on data directories, a restored backup, a running broker, and other folders."""

import json
import subprocess
from itertools import islice
from pathlib import Path

import pytest

import penstock
from support import Broker
from support.broker import penstock_command

pytestmark = pytest.mark.slow
LARGE_BYTES = 3 << 20


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([penstock_command(), *arguments], capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def own(tmp_path: Path) -> Broker:
    """Return a stopped broker with a gap between its segments: settled ones are removed."""
    settings = tmp_path / "penstock.toml"
    settings.write_text("compaction_bytes_per_second = 0\n")
    broker = Broker(tmp_path / "data", "--config", str(settings), shards=1)
    with broker, penstock.connect(broker.uri()) as connection:
        connection.declare_queue("slow")
        connection.declare_queue("fast")
        connection.publish(b"first", routing_key="slow")
        for _ in range(6):
            connection.publish_many([bytes(LARGE_BYTES)] * 4, routing_key="fast")
            for message in islice(connection.consume("fast", prefetch=4), 4):
                message.ack()
        connection.publish(b"last", routing_key="slow")
        broker.stop()
    return broker


def folder(directory: Path) -> Path:
    (found,) = (path.parent for path in directory.glob("*/definitions.amqp"))
    return found


def assert_healthy(directory: Path) -> None:
    verified = run("log", "verify", str(directory), "--output", "json")
    assert (verified.returncode, verified.stderr) == (0, "")
    assert [segment["error"] for segment in json.loads(verified.stdout) if segment["error"]] == []


def test_a_log_from_whose_middle_segments_were_removed_is_healthy_and_so_is_a_backup_of_it(
    own: Broker, tmp_path: Path
) -> None:
    numbers = sorted(int(path.name[5:]) for path in folder(own.data_dir).glob("msgs.*") if path.name[5:].isdecimal())
    assert numbers[-1] - numbers[0] >= len(numbers), f"nothing was removed between {numbers}"

    assert_healthy(folder(own.data_dir))

    backup, restored = tmp_path / "backup", tmp_path / "restored"
    with own:
        assert run("backup", "write", str(backup), "--uri", own.uri()).returncode == 0
        own.stop()
    assert run("restore", str(backup), "--data-dir", str(restored)).returncode == 0
    assert_healthy(restored)


def test_a_data_directory_stands_for_all_its_virtual_hosts(own: Broker) -> None:
    with own:
        with penstock.connect(own.uri()) as connection:
            connection.admin.create_vhost("other")
        own.stop()

    verified = run("log", "verify", str(own.data_dir), "--output", "json")

    assert verified.returncode == 0, verified.stderr
    vhosts = {segment["file"].split("/")[0] for segment in json.loads(verified.stdout)}
    assert vhosts >= {folder_of.parent.name for folder_of in own.data_dir.glob("*/msgs.*")}
    assert len(vhosts) == 2
    assert "nothing to repair" in run("log", "repair", str(own.data_dir), "--yes").stdout


@pytest.mark.parametrize("command", ["verify", "inspect", "repair"])
def test_a_folder_without_a_log_is_an_error(command: str, tmp_path: Path) -> None:
    (tmp_path / "certificate.pem").write_text("no segment")

    result = run("log", command, str(tmp_path), *(["--yes"] if command == "repair" else []))

    assert (result.returncode, result.stdout) == (1, "")
    assert "has no log" in result.stderr


@pytest.mark.parametrize("command", ["verify", "inspect"])
def test_the_directory_of_a_running_broker_is_refused(command: str, own: Broker) -> None:
    with own:
        for directory in (own.data_dir, folder(own.data_dir)):
            result = run("log", command, str(directory))

            assert (result.returncode, result.stdout) == (1, "")
            assert "is in use by another broker" in result.stderr


def test_messages_whose_segment_is_gone_are_told_by_their_queue(own: Broker) -> None:
    (segment,) = (path for path in folder(own.data_dir).glob("msgs.*[0-9]") if b"first" in path.read_bytes())
    segment.unlink()

    verified = run("log", "verify", str(own.data_dir))

    assert verified.returncode == 1
    assert "1 messages from 1 on have no record in any segment (queue 'slow')" in verified.stderr
