"""Queues whose numbers need more than 32 bits, over kills, and the end of the numbers."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

import penstock
from penstock.model.names import QUEUE_ID_MAX, QueueId, QueueName
from penstock.model.records import Queue
from penstock.storage import directory_name
from penstock.storage.amqp_frames import Declared, QueueDeleted
from penstock.storage.definitions_amqp import DefinitionsFile
from support import Broker
from support.broker import penstock_command


def use_up(data: Path, number: int) -> None:
    """Make a queue number the highest that was ever used, as if its queue had been declared and deleted."""

    async def declare_and_delete() -> None:
        file, _ = DefinitionsFile.open(data / directory_name("/") / "definitions.amqp")
        await file.append([Declared(Queue(QueueId(number), QueueName("gone"))), QueueDeleted(QueueName("gone"))])
        await file.close()

    asyncio.run(declare_and_delete())


def begun_above(data: Path, number: int, shards: int = 1) -> Broker:
    """Return a broker, not started, whose next queue has the number after this one."""
    with Broker(data, shards=shards) as broker:
        broker.stop()
    use_up(data, number)
    return broker


@pytest.mark.parametrize("shards", [1, 3])
def test_queues_with_numbers_above_32_bits_keep_their_messages_over_kills(tmp_path: Path, shards: int) -> None:
    own = begun_above(tmp_path / "data", 2**32 - 2, shards)
    names = [f"q{number}" for number in range(5)]
    with own:
        with penstock.connect(own.uri()) as connection:
            connection.declare_exchange("all", "fanout")
            for name in names:
                connection.declare_queue(name)
                connection.bind_queue(name, "all")
            connection.declare_queue("own", arguments={"x-dedicated": True})
            connection.declare_stream("clicks", partitions=2)
            connection.publish_many([b"%d" % number for number in range(100)], exchange="all")
            connection.publish_many([b"a"] * 10, routing_key="own")
            connection.reserve_lease("q4", "warm", 1, messages_max=30)
            taken = connection.get("q3")
            assert taken is not None
            taken.ack()
            with connection.stream("clicks").publisher("import") as publisher:
                for sequence in range(1, 21):
                    publisher.publish(b"row", key=b"%d" % sequence, sequence=sequence)
            found = connection.stream("clicks").offsets()
            assert {partition.id for partition in found} == {2**32 + 5, 2**32 + 6}
            before = {partition.partition: partition.next for partition in found}
        folder = tmp_path / "data" / directory_name("/") / "shards"
        assert [path.name for path in folder.iterdir()] == [str(2**32 + 4)]

        for _ in range(2):
            own.kill()
            own.start()

        with penstock.connect(own.uri()) as connection:
            counts = {name: connection.admin.get_queue(name).ready_count for name in [*names, "own"]}
            assert counts == {"q0": 100, "q1": 100, "q2": 100, "q3": 99, "q4": 70, "own": 10}
            assert connection.admin.list_leases("q4").owners[0].leases[0].message_count == 30
            for name in ("q0", "q2"):
                bodies = [message.body for message in connection.consume(name, auto_ack=True, idle_timeout=4)]
                assert bodies == [b"%d" % number for number in range(100)]
            assert {found.partition: found.next for found in connection.stream("clicks").offsets()} == before
            connection.delete_queue("q1")
            connection.declare_queue("q1")
            assert connection.admin.get_queue("q1").ready_count == 0
        own.stop()

    verified = subprocess.run(
        [penstock_command(), "log", "verify", str(tmp_path / "data"), "--output", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(verified.stdout)


def test_a_queue_is_refused_when_the_numbers_are_used_up(tmp_path: Path) -> None:
    own = begun_above(tmp_path / "data", QUEUE_ID_MAX - 1)
    with own, penstock.connect(own.uri()) as connection:
        connection.declare_queue("last")
        connection.publish_many([b"a"], routing_key="last")
        own.restart()

        with penstock.connect(own.uri()) as again:
            with pytest.raises(penstock.PenstockError, match="all queue numbers of its vhost are used"):
                again.declare_queue("one more")
            assert [message.body for message in again.consume("last", auto_ack=True, idle_timeout=4)] == [b"a"]
            again.delete_queue("last")
            with pytest.raises(penstock.PenstockError, match="all queue numbers of its vhost are used"):
                again.declare_queue("last")
