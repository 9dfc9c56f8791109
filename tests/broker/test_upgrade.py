"""Directories that a broker of format 1 wrote are opened, served and closed in format 2, and newer ones are refused.

`tests/golden/make_format_1.py` wrote them: one that was stopped, and one that was killed.
"""

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import pytest

import penstock
from support import Broker
from support.broker import BrokerError

GOLDEN = Path(__file__).parent.parent / "golden" / "format-1"
COUNT, SETTLED_COUNT, LATE_COUNT = 400, 100, 20
SEGMENT_HEADER, RECORD_HEADER = 64, 24
HEAD = RECORD_HEADER + 10 + 12
"""Of a message with one target, up to its payload."""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data", shards=1) as broker:
        yield broker


def unpacked(name: str, target: Path) -> Path:
    with tarfile.open(GOLDEN / f"{name}.tgz") as archive:
        archive.extractall(target, filter="data")
    return target / "data"


def numbered(name: str, count: int = COUNT) -> list[bytes]:
    return [f"{name} {number}".encode() for number in range(count)]


def formats(data_dir: Path) -> dict[str, int]:
    """Return the format of each segment and checkpoint."""
    names = [path for kind in ("msgs", "checkpoint") for path in data_dir.rglob(f"{kind}.*[0-9]")]
    return {str(path.relative_to(data_dir)): int.from_bytes(path.read_bytes()[8:12], "little") for path in names}


def format_of(data_dir: Path) -> int:
    found: int = json.loads((data_dir / "node.json").read_text())["format"]
    return found


def bodies(connection: penstock.Connection, queue: str, *, auto_ack: bool = True) -> list[bytes]:
    return [message.body for message in connection.consume(queue, auto_ack=auto_ack, idle_timeout=4)]


@pytest.mark.parametrize("name", ["stopped", "killed"])
def test_a_directory_of_format_1_is_served_and_goes_on_in_format_2(tmp_path: Path, name: str) -> None:
    data_dir = unpacked(name, tmp_path)
    before = formats(data_dir)
    assert set(before.values()) == {1}
    assert any(Path(file).name.count(".") == 2 for file in before), "one segment was rewritten"
    late = numbered("late", LATE_COUNT) if name == "killed" else []
    settled_count = SETTLED_COUNT + (10 if name == "killed" else 0)
    orders = numbered("order")[settled_count:] + late

    with Broker(data_dir) as broker:
        assert format_of(data_dir) == 2
        with penstock.connect(broker.uri()) as connection:
            assert bodies(connection, "orders", auto_ack=False) == orders
            connection.publish(b"new", routing_key="orders")
            first = connection.get("orders")
            assert first is not None
            assert (first.body, first.redelivered) == (orders[0], True)
            first.ack()
            check_others(connection)
        assert broker.log.count("data directory upgraded") == 1
        assert broker.stop() == 0
        after = formats(data_dir)
        assert 2 in after.values()
        assert {file: after[file] for file in before if file in after} == {file: 1 for file in before if file in after}
        broker.start()
        with penstock.connect(broker.uri()) as connection:
            assert bodies(connection, "orders") == [*orders[1:], b"new"]
            assert bodies(connection, "work") == numbered("order")[SETTLED_COUNT:]
            assert bodies(connection, "slow") == numbered("slow", 40)
            assert connection.admin.get_queue("leased").unacked_count == 0
        assert broker.log.count("data directory upgraded") == 1


def check_others(connection: penstock.Connection) -> None:
    names = ["events", "leased", "orders", "slow", "work", "busy"]
    assert sorted(queue.name for queue in connection.admin.list_queues()) == sorted(names)
    stream = connection.stream("events")
    batches = [body for batch in range(3) for body in numbered(f"batch {batch}", 10)]
    stored = [message.body for message in stream.read("first", until="next")]
    assert stored == numbered("event") + numbered("imported", SETTLED_COUNT) + batches
    assert [(group.name, group.offset) for group in stream.groups()] == [("readers", SETTLED_COUNT)]
    with stream.publisher("import") as publisher:
        assert publisher.last_sequence == SETTLED_COUNT
    (owner,) = connection.admin.list_leases("leased").owners
    assert (owner.owner, [(lease.lease, lease.message_count) for lease in owner.leases]) == ("nightly", [(1, 5)])
    assert connection.ack_leases("leased", "nightly", 1) == 5
    assert connection.admin.get_queue("leased").ready_count == COUNT - 5


def test_a_start_that_is_refused_leaves_the_format_as_it_was(tmp_path: Path) -> None:
    data_dir = unpacked("stopped", tmp_path)
    (definitions,) = [path for path in data_dir.glob("*/definitions.amqp") if path.stat().st_size > 4]
    definitions.write_bytes(definitions.read_bytes()[:-1] + b"\0")

    with pytest.raises(BrokerError, match="definitions"):
        Broker(data_dir).start()

    assert format_of(data_dir) == 1
    assert set(formats(data_dir).values()) == {1}


def test_a_directory_of_format_3_is_refused_and_not_changed(tmp_path: Path) -> None:
    data_dir = unpacked("stopped", tmp_path)
    node = data_dir / "node.json"
    node.write_text(json.dumps(json.loads(node.read_text()) | {"format": 3}))
    before = contents(data_dir)

    with pytest.raises(BrokerError, match="has the format 3, and this version knows the formats 1 to 2"):
        Broker(data_dir).start()

    assert contents(data_dir) == before


def test_a_segment_of_format_3_is_refused(own: Broker) -> None:
    own.stop()
    segment = newest_segment(own.data_dir)
    content = bytearray(segment.read_bytes())
    content[8] = 3
    content[60:64] = google_crc32c.value(bytes(content[:60])).to_bytes(4, "little")
    segment.write_bytes(content)

    with pytest.raises(BrokerError, match="has format 3, this version reads up to 2; start a newer version"):
        own.start()


@pytest.mark.parametrize("change", ["flag", "kind"])
def test_a_record_of_a_newer_version_is_refused_and_nothing_is_dropped(own: Broker, change: str) -> None:
    with penstock.connect(own.uri()) as connection:
        connection.declare_queue("letters")
        connection.publish(b"a letter", routing_key="letters")
    own.kill()
    segment = newest_segment(own.data_dir)
    content = bytearray(segment.read_bytes())
    at = SEGMENT_HEADER
    while b"a letter" not in content[at : at + (length := int.from_bytes(content[at : at + 4], "little"))]:
        assert length > 0
        at += length
    # With the flag, the first letters of the routing key are further flags, some of which no version has.
    content[at + (4 if change == "kind" else 5)] = 7 if change == "kind" else 128
    reseal(content, at, at + HEAD)
    segment.write_bytes(content)
    before = segment.read_bytes()

    with pytest.raises(BrokerError, match=r"that version [0-9.]+ does not know; start the version that wrote it"):
        own.start()

    assert segment.read_bytes() == before


def reseal(content: bytearray, at: int, head_end: int) -> None:
    seed = google_crc32c.value(bytes(content[16:32] + content[48:56]))
    head = bytes(content[at : at + 20] + content[at + RECORD_HEADER : head_end])
    content[at + 20 : at + RECORD_HEADER] = google_crc32c.extend(seed, head).to_bytes(4, "little")


def newest_segment(data_dir: Path) -> Path:
    segments = [path for path in data_dir.glob("*/msgs.*[0-9]") if path.name.count(".") == 1]
    return max(segments, key=lambda path: path.name)


def contents(data_dir: Path) -> dict[str, bytes]:
    files = (path for path in data_dir.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path): path.read_bytes() for path in files}
