"""A copy of a log for a backup has all that was confirmed before, or is refused."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from penstock.cluster.host import ClusterHost
from penstock.cluster.hosted import HostedReplica
from penstock.cluster.meta.codec import Codec
from penstock.cluster.meta.leader_link import Method
from penstock.cluster.meta.member import MetaMember
from penstock.cluster.record import BrokerName, Leader, ShardRecord
from penstock.cluster.shard_calls import ProgressAnswer, ShardReport
from penstock.model.errors import PreconditionFailedError, StorageError, Thing
from penstock.model.names import VhostName
from penstock.native import ReplicaRole, ReplicaStanding, ShardProgress
from penstock.node.in_cluster.log_copies import LogCopies

ME, LEADER = BrokerName("mq-0"), BrokerName("mq-1")
REPLICA = "a" * 32
SHARD = "shop.0.1"
EPOCH, END = 7, 1_000


class World:
    """A shard that a broker leads whose log ends at END, and this broker's replica, which is copied as it is."""

    def __init__(self, leader: BrokerName = LEADER) -> None:
        self.me = self
        self.name = ME
        self.record: ShardRecord | None = ShardRecord(
            epoch=EPOCH,
            leader=Leader(broker=leader, replica=REPLICA, boot=1),
            in_sync=(REPLICA,),
            replicas={REPLICA: leader},
            min_in_sync=1,
        )
        self.known = self.committed = 0
        self.role = ReplicaRole()
        self.says_epoch = EPOCH
        self.questions: list[Callable[[], None]] = []
        """Called one after the other, one for each time that the record is read."""

    async def read_record(self, shard: str) -> ShardRecord | None:
        assert shard == SHARD
        if self.questions:
            self.questions.pop(0)()
        return self.record

    async def call(self, broker: BrokerName, method: Method, content: bytes) -> bytes:
        assert (broker, method) == (LEADER, Method.PROGRESS)
        report = ShardReport(SHARD, self.says_epoch, END, {})
        return Codec[ProgressAnswer](ProgressAnswer).encode(ProgressAnswer((report,)))

    def progress(self) -> ShardProgress:
        return ShardProgress(epoch=self.says_epoch, end=END, committed=0, acknowledged=[])

    async def begin_backup(self) -> int:
        return self.committed

    def commit(self, position: int) -> None:
        self.known = position

    async def standing(self) -> ReplicaStanding:
        return ReplicaStanding(role=self.role, committed=self.known, end=END)

    def take_standing(self, standing: ReplicaStanding) -> None:
        self.committed = standing.committed


def copy(world: World, seconds: float = 5.0) -> int:
    async def run() -> int:
        copies = LogCopies(cast(ClusterHost, world), cast(MetaMember, world), seconds)
        copied = await copies.copy(VhostName("shop"), SHARD, cast(HostedReplica, world))
        return cast(int, copied)

    return asyncio.run(run())


@pytest.mark.parametrize("leader", [ME, LEADER])
def test_a_copy_waits_until_this_broker_knows_all_of_the_leaders_log_as_committed(leader: BrokerName) -> None:
    world = World(leader)
    world.commit(END - 1)

    def commit_soon() -> None:
        asyncio.get_running_loop().call_later(0.05, world.commit, END + 50)

    world.questions = [commit_soon]

    assert copy(world) == END + 50


def test_a_replica_that_lags_is_not_copied() -> None:
    world = World()
    world.commit(END - 1)

    with pytest.raises(PreconditionFailedError, match="it has a replica at broker 'mq-0' that lags"):
        copy(world, seconds=0.2)


def test_a_leader_of_another_epoch_than_the_record_has_is_asked_again() -> None:
    world = World()
    world.commit(END)
    world.says_epoch = EPOCH - 1
    world.questions = [lambda: None, lambda: setattr(world, "says_epoch", EPOCH)]

    assert copy(world) == END


def test_a_time_without_the_coordinator_or_a_leader_is_waited_for() -> None:
    world = World()
    world.commit(END)

    def fail() -> None:
        raise StorageError(Thing("coordinator", "etcd"), "cannot be reached", "start it")

    world.questions = [fail, lambda: None]

    assert copy(world) == END


def test_a_shard_without_a_leader_is_refused() -> None:
    world = World()
    world.record = None

    with pytest.raises(PreconditionFailedError, match="cannot be backed up: it is led by no broker that answers"):
        copy(world, seconds=0.2)
