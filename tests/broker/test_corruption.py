"""Bytes that change on the disk: they are never delivered, everything else is served, and their place is reported."""

import json
import subprocess
from itertools import islice
from pathlib import Path

import pytest

import penstock
from support import Broker, eventually
from support.broker import penstock_command

pytestmark = pytest.mark.slow
COUNT = 300


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([penstock_command(), *arguments], capture_output=True, text=True, timeout=60, check=False)


def body(number: int) -> bytes:
    return f"message {number:04}".encode().ljust(200, b".")


@pytest.fixture
def own(tmp_path: Path) -> Broker:
    """Return a stopped broker with messages in two queues."""
    broker = Broker(tmp_path / "data", shards=1)
    with broker, penstock.connect(broker.uri()) as connection:
        connection.declare_queue("jobs")
        connection.declare_queue("other")
        connection.publish_many([body(number) for number in range(COUNT)], routing_key="jobs")
        connection.publish_many([b"other"] * 10, routing_key="other")
        broker.stop()
    return broker


def folder(broker: Broker) -> Path:
    (found,) = (path.parent for path in broker.data_dir.glob("*/definitions.amqp"))
    return found


def flip(broker: Broker, content: bytes) -> tuple[Path, int]:
    """Change a byte of the record with that body; return its file and the body's offset."""
    for path in sorted(folder(broker).glob("msgs.*[0-9]")):
        found = bytearray(path.read_bytes())
        at = found.find(content)
        if at >= 0:
            found[at + 20] ^= 0xFF
            path.write_bytes(found)
            return path, at
    raise AssertionError(f"no segment holds {content!r}")


def test_one_flipped_byte_costs_one_message_and_is_told(own: Broker) -> None:
    path, at = flip(own, body(123))

    with own, penstock.connect(own.uri()) as connection:
        assert connection.admin.status().corruption == ()
        got = {message.body for message in islice(connection.consume("jobs", prefetch=COUNT), COUNT - 1)}
        assert got == {body(number) for number in range(COUNT) if number != 123}
        eventually(lambda: len(connection.admin.status().corruption), 1)
        (corruption,) = connection.admin.status().corruption
        assert (corruption.vhost, corruption.file, corruption.queues) == ("/", path.name, ("jobs",))
        assert 0 < at - corruption.at < 100
        page = own.scrape()
        assert "penstock_corrupt_records_total 1.0" in page
        assert "penstock_quarantined_segments 1.0" in page
        eventually(lambda: f"{path.name} is corrupt" in own.log, True)


def test_verify_names_segment_position_and_queue_and_repair_drops_the_message(own: Broker) -> None:
    path, at = flip(own, body(7))

    verified = run("log", "verify", str(folder(own)), "--output", "json")

    assert verified.returncode == 1
    (segment,) = (segment for segment in json.loads(verified.stdout) if segment["error"])
    (corrupt,) = segment["corrupt"]
    assert (segment["file"], corrupt["queues"]) == (path.name, ["jobs"])
    assert corrupt["messages"] == [{"queue": "jobs", "sequence": 8}]
    assert corrupt["position"] == segment["first_position"] + corrupt["at"] - 64
    assert 0 < at - corrupt["at"] < 100
    for part in (path.name, str(corrupt["position"]), "'jobs'"):
        assert part in verified.stderr

    repaired = run("log", "repair", str(folder(own)), "--yes")

    assert repaired.returncode == 0, repaired.stderr
    assert "dropped message 8 of queue 'jobs'" in repaired.stdout
    assert "nothing to repair" in run("log", "repair", str(folder(own)), "--yes").stdout
    with own, penstock.connect(own.uri()) as connection:
        assert connection.admin.get_queue("jobs").ready_count == COUNT - 1
        bodies = [message.body for message in islice(connection.consume("jobs", prefetch=COUNT), COUNT - 1)]
        assert bodies == [body(number) for number in range(COUNT) if number != 7]
        assert connection.admin.status().corruption == ()


def test_a_repair_that_is_not_wanted_changes_nothing(own: Broker) -> None:
    flip(own, body(7))
    before = {path.name: path.read_bytes() for path in folder(own).iterdir()}

    asked = subprocess.run(
        [penstock_command(), "log", "repair", str(folder(own))],
        input="n\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert asked.returncode == 1
    assert "'jobs'" in asked.stderr
    assert {path.name: path.read_bytes() for path in folder(own).iterdir()} == before


def test_a_repair_is_refused_while_a_broker_runs(own: Broker) -> None:
    with own:
        refused = run("log", "repair", str(folder(own)), "--yes")

    assert refused.returncode == 1
    assert "is in use by another broker" in refused.stderr


def test_a_segment_that_is_gone_is_told_and_the_other_queue_is_served(own: Broker) -> None:
    path, _ = flip(own, body(7))
    content = path.read_bytes()
    # A copy of the header ends the file.
    path.write_bytes(bytes(64) + content[64:-64] + bytes(64))

    with own, penstock.connect(own.uri()) as connection:
        connection.declare_queue("new")
        connection.publish(b"goes on", routing_key="new")
        assert next(iter(connection.consume("new"))).body == b"goes on"
        assert connection.admin.get_queue("jobs").ready_count == COUNT
        assert connection.get("jobs") is None
        eventually(lambda: connection.admin.get_queue("jobs").ready_count, 0)
        assert any("jobs" in corruption.queues for corruption in connection.admin.status().corruption)
    assert path.read_bytes() == bytes(64) + content[64:-64] + bytes(64)


def test_a_segment_without_its_header_is_served_by_the_copy_and_told_at_the_start(own: Broker) -> None:
    path, _ = flip(own, body(7))
    content = path.read_bytes()
    path.write_bytes(bytes(64) + content[64:])

    with own, penstock.connect(own.uri()) as connection:
        assert [corruption.file for corruption in connection.admin.status().corruption] == [path.name]
        bodies = [message.body for message in islice(connection.consume("jobs", prefetch=COUNT), COUNT - 1)]
        assert bodies == [body(number) for number in range(COUNT) if number != 7]
