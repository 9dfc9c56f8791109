"""The leader of a shard of which a broker has no replica."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from penstock.cluster.record import Leader, ReplicaId, ShardRecord
from penstock.model.errors import StorageError, Thing
from penstock.node.in_cluster.remote_leader import KNOWN_S, RemoteLeader
from support.grpc_fakes import FakeClock

REPLICA = ReplicaId("a" * 32)
KNOWN_MS = round(KNOWN_S * 1_000)


class FakeCoordinator:
    """`leader` is the broker of its record; it has none without."""

    def __init__(self) -> None:
        self.leader: str | None = "mq-1"
        self.answers = True
        self.count = 0

    async def read(self) -> ShardRecord | None:
        self.count += 1
        await asyncio.sleep(0)
        if not self.answers:
            raise StorageError(Thing("coordinator", "file"), "sends no answer", "start it")
        if self.leader is None:
            return None
        leader = Leader(broker=self.leader, replica=REPLICA, boot=1)
        return ShardRecord(epoch=7, leader=leader, in_sync=(REPLICA,), replicas={REPLICA: self.leader}, min_in_sync=1)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_clients_that_come_at_once_are_one_question() -> None:
    async def scenario() -> None:
        coordinator, clock = FakeCoordinator(), FakeClock()
        leader = RemoteLeader(coordinator.read, clock)

        assert await asyncio.gather(*(leader.find() for _ in range(100))) == ["mq-1"] * 100
        assert coordinator.count == 1

        coordinator.leader = "mq-2"
        clock.ms += KNOWN_MS
        assert await leader.find() == "mq-2"

    run(scenario())


def test_no_leader_is_known_without_a_record_or_an_answer() -> None:
    async def scenario() -> None:
        coordinator, clock = FakeCoordinator(), FakeClock()
        leader = RemoteLeader(coordinator.read, clock)
        coordinator.answers = False
        assert await leader.find() is None
        assert await leader.find() is None
        assert coordinator.count == 1

        coordinator.answers, coordinator.leader = True, None
        clock.ms += KNOWN_MS
        assert await leader.find() is None

    run(scenario())
