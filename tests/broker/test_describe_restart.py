"""What DescribeStreams returns outlives the process: ids, row counts and skipped offsets, also of a restored backup."""

import json
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from support import Broker
from support.broker import penstock_command
from support.describer import Describer, Found

pytestmark = pytest.mark.slow

RAISE = 2**32


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data") as broker:
        yield broker


def described(broker: Broker) -> dict[str, Found]:
    describer = Describer(broker, "/")
    try:
        return {found["partition"]: found for found in describer.ask({"streams": ["events", "own"]})}
    finally:
        describer.client.close()


def each(partitions: dict[str, Found], field: str) -> dict[str, object]:
    return {name: found[field] for name, found in partitions.items()}


def lose_power(broker: Broker) -> None:
    """Kill it, and start it in another boot: the page cache may have been lost."""
    broker.kill()
    node = broker.data_dir / "node.json"
    node.write_text(json.dumps(json.loads(node.read_text()) | {"boot_id": str(uuid.uuid4())}))
    broker.start()


def publish(broker: Broker, count: int) -> None:
    with penstock.connect(broker.uri(), durability="disk") as connection:
        for name in ("events", "own"):
            connection.stream(name).publish_many([b"x"] * count)


def declare(broker: Broker) -> None:
    with penstock.connect(broker.uri()) as connection:
        connection.declare_stream("events")
        connection.declare_stream("own", dedicated=True)


def test_skipped_offsets_are_no_rows_and_ids_stay(own_broker: Broker) -> None:
    declare(own_broker)
    before = described(own_broker)
    publish(own_broker, 80)
    lose_power(own_broker)
    publish(own_broker, 20)
    lose_power(own_broker)
    own_broker.restart()

    after = described(own_broker)

    for name in ("events", "own"):
        found = after[name]
        assert found["id"] == before[name]["id"]
        runs = [[1, 81], [81 + RAISE, 101 + RAISE]]
        assert (found["first"], found["next"], found["rows"], found["runs"]) == (1, 101 + 2 * RAISE, 100, runs)
    with penstock.connect(own_broker.uri()) as connection:
        queue = next(queue for queue in connection.admin.list_queues() if queue.name == "events")
        assert queue.published_count == 100


def test_a_stream_that_was_declared_just_before_a_kill_keeps_its_id(own_broker: Broker) -> None:
    for _ in range(3):
        declare(own_broker)
        before = described(own_broker)
        lose_power(own_broker)
        after = described(own_broker)
        assert {name: found["id"] for name, found in after.items()} == {
            name: found["id"] for name, found in before.items()
        }
        with penstock.connect(own_broker.uri()) as connection:
            connection.delete_stream("events")
            connection.delete_stream("own")


def test_a_restored_backup_has_the_same_ids_and_rows(own_broker: Broker, tmp_path: Path) -> None:
    declare(own_broker)
    publish(own_broker, 10)
    lose_power(own_broker)
    publish(own_broker, 5)
    before = described(own_broker)
    with penstock.connect(own_broker.uri()) as connection:
        connection.admin.backup(str(tmp_path / "copy"))
        connection.declare_stream("later")

    command = [penstock_command(), "restore", str(tmp_path / "copy"), "--data-dir", str(tmp_path / "restored")]
    subprocess.run(command, check=True, capture_output=True)

    with Broker(tmp_path / "restored") as restored:
        after = described(restored)
        assert {name: found["id"] for name, found in after.items()} == {
            name: found["id"] for name, found in before.items()
        }
        assert each(after, "rows") == {"events": 15, "own": 15}
        with penstock.connect(restored.uri()) as connection:
            connection.declare_stream("later")
        ids = [Describer(broker, "/").one("later")["id"] for broker in (own_broker, restored)]
        assert ids[0] != ids[1], "a stream that each of them declared on its own"
