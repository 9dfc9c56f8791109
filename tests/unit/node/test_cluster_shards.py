"""The calls of an operator of a cluster, over brokers in memory: what is shown, who moves, and who is refused."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.cluster.calls import LostCallError, NotCarriedOutError
from penstock.cluster.host import ClusterHost
from penstock.cluster.meta.changes import BrokerPut
from penstock.cluster.meta.commands import Addresses, PlaceVhost
from penstock.cluster.meta.member import MetaMember
from penstock.cluster.record import BrokerName, Leader, ShardRecord
from penstock.cluster.shard_calls import HandOver
from penstock.metadata.effects import Done
from penstock.model.errors import (
    BusyError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionFailedError,
    StorageError,
    Thing,
)
from penstock.model.names import VhostName
from penstock.native import ReplicaPosition, ShardProgress
from penstock.node.in_cluster import moving, shards
from penstock.node.in_cluster.cluster_view import ClusterView
from penstock.node.in_cluster.leader_reports import LeaderReports
from penstock.node.in_cluster.metadata import Metadata
from penstock.node.in_cluster.shards import ClusterShards

VHOST, SHARD = VhostName("shop"), "shop.0.1"
BROKERS = [BrokerName(f"mq-{number}") for number in range(4)]
REPLICAS = {f"{number:032x}": broker for number, broker in enumerate(BROKERS[:3])}
END = 1_000


class World:
    """Brokers whose shards have one record each. The last broker has no replica, and the one before is not in sync."""

    def __init__(self) -> None:
        self.leaders = {"meta": BROKERS[0], SHARD: BROKERS[0]}
        self.views: dict[BrokerName, ClusterShards] = {}
        self.hosts: dict[BrokerName, FakeHost] = {}
        self.lost_count = 0
        self.gone: set[BrokerName] = set()
        self.silent: set[BrokerName] = set()
        self.draining: set[BrokerName] = set()
        self.placement = {SHARD: tuple(BROKERS[:3])}
        for broker in BROKERS:
            host, member = FakeHost(self, broker), FakeMember(self)
            metadata = SimpleNamespace(me=broker, state=self, submit=self.submit)
            self.hosts[broker] = host
            view = ClusterView(
                "test",
                cast(ClusterHost, host),
                cast(MetaMember, member),
                cast(Metadata, metadata),
                lambda each: each not in self.gone,
                Path,
            )
            reports = LeaderReports(cast(ClusterHost, host), cast(MetaMember, member))
            self.views[broker] = ClusterShards(view, reports)
            self.members = {**getattr(self, "members", {}), broker: member}

    vhosts: Mapping[VhostName, None] = {VHOST: None}

    @property
    def brokers(self) -> dict[BrokerName, BrokerPut]:
        return {each: BrokerPut(each, 1, 1, each in self.draining, Addresses(f"{each}:5681")) for each in BROKERS}

    def shards_of(self, _: VhostName) -> list[str]:
        return [SHARD]

    async def submit(self, command: PlaceVhost) -> Done:
        assert (command.vhost, command.replaces) == (VHOST, self.placement[SHARD])
        self.placement[SHARD] = command.brokers
        return Done(int(command.brokers != command.replaces))

    def record(self, shard: str) -> ShardRecord:
        leader = self.leaders[shard]
        replica = next(replica for replica, broker in REPLICAS.items() if broker == leader)
        return ShardRecord(
            epoch=7,
            leader=Leader(broker=leader, replica=replica, boot=1),
            in_sync=tuple(sorted(REPLICAS)[:2]),
            replicas=dict(REPLICAS),
            min_in_sync=2,
        )


class FakeMember:
    def __init__(self, world: World) -> None:
        self._world = world
        self.handlers: dict[int, Any] = {}

    def answer(self, method: int, handler: Any) -> None:
        self.handlers[method] = handler

    async def call(self, broker: BrokerName, method: int, content: bytes) -> bytes:
        if broker in self._world.gone:
            raise NotCarriedOutError
        if broker in self._world.silent:
            raise LostCallError
        answer: bytes = await self._world.members[broker].handlers[method](content)
        if self._world.lost_count:
            self._world.lost_count -= 1
            raise LostCallError
        return answer


class FakeHost:
    """The replica of a leader hands over at once."""

    def __init__(self, world: World, me: BrokerName) -> None:
        self._world = world
        self._me = me
        self.me = SimpleNamespace(name=me)
        self.is_stuck = False
        self.has_coordinator = True
        self.silent_shards: set[str] = set()
        """Shards for which the coordinator sends no answer."""
        self.known: set[str] = set()
        """Shards with a replica here."""

    def is_connected(self, broker: BrokerName) -> bool:
        return broker not in self._world.gone

    def known_record(self, shard: str) -> ShardRecord | None:
        return self._world.record(shard) if shard in self.known else None

    async def read_record(self, shard: str) -> ShardRecord:
        if not self.has_coordinator:
            raise StorageError(Thing("coordinator", "etcd"), "cannot be reached", "check it")
        if shard in self.silent_shards:
            await asyncio.Event().wait()
        return self._world.record(shard)

    def hosted(self, shard: str) -> Any:
        return SimpleNamespace(shard=shard, progress=lambda: self._progress(shard))

    async def resign(self, replica: Any, to: BrokerName) -> HandOver:
        if self._world.leaders[replica.shard] != self._me:
            return HandOver.NOT_LEADING
        if self.is_stuck:
            return HandOver.NOT_TAKEN
        self._world.leaders[replica.shard] = to
        return HandOver.DONE

    def _progress(self, shard: str) -> ShardProgress | None:
        if self._world.leaders[shard] != self._me:
            return None
        follower = ReplicaPosition(replica=sorted(REPLICAS)[1], position=END - 10)
        return ShardProgress(epoch=7, end=END, committed=END - 10, acknowledged=[follower])


def shown(world: World, at: BrokerName) -> list[tuple[str | None, str, bool, list[int | None]]]:
    status = asyncio.run(world.views[at].status())
    return [
        (shard.vhost, shard.leader, shard.is_led, [replica.lag_bytes for replica in shard.replicas])
        for shard in status.shards
    ]


def move(world: World, at: BrokerName, to: str) -> tuple[str, bool]:
    moved = asyncio.run(world.views[at].move(VHOST, to))
    return moved.broker, moved.is_moved


def test_every_broker_shows_what_the_leaders_know() -> None:
    world = World()
    world.leaders[SHARD] = BROKERS[1]

    for broker in BROKERS:
        meta, vhost = shown(world, broker)
        assert meta == (None, "mq-0", True, [0, 10, None])
        assert vhost == (VHOST, "mq-1", True, [None, 0, None])


def test_a_leader_that_does_not_answer_leaves_gaps() -> None:
    world = World()
    world.gone = {BROKERS[0]}

    assert shown(world, BROKERS[1]) == [(None, "mq-0", False, [None] * 3), (VHOST, "mq-0", False, [None] * 3)]


def test_a_shard_without_a_record_is_shown() -> None:
    world = World()
    world.hosts[BROKERS[1]].has_coordinator = False

    assert shown(world, BROKERS[1]) == [(None, "", False, []), (VHOST, "", False, [])]
    status = asyncio.run(world.views[BROKERS[1]].status())
    assert [shard.is_unknown for shard in status.shards] == [True, True]
    assert "coordinator 'etcd' cannot be reached" in status.coordinator_fault


def test_a_silent_coordinator_leaves_gaps_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker without replicas sent no answer for minutes: it waited for one question after another."""
    monkeypatch.setattr(shards, "COORDINATOR_S", 0.05)
    world = World()
    host = world.hosts[BROKERS[3]]
    host.silent_shards = {"meta", SHARD}
    host.known = {"meta"}

    status = asyncio.run(asyncio.wait_for(world.views[BROKERS[3]].status(), 60))

    assert [(shard.leader, shard.is_led, shard.is_unknown) for shard in status.shards] == [
        ("mq-0", True, False),
        ("", False, True),
    ]
    assert status.coordinator_fault.startswith("no answer within")
    host.silent_shards = set()
    answered = asyncio.run(world.views[BROKERS[3]].status())
    assert (answered.coordinator_fault, [shard.is_unknown for shard in answered.shards]) == ("", [False, False])


@pytest.mark.parametrize("asked", BROKERS)
def test_any_broker_moves_a_leader_once(asked: BrokerName) -> None:
    world = World()

    assert move(world, asked, "mq-1") == ("mq-1", True)
    assert move(world, asked, "mq-1") == ("mq-1", False)


def test_a_lost_answer_is_no_unknown_outcome() -> None:
    world = World()
    world.lost_count = 1

    assert move(world, BROKERS[2], "mq-1") == ("mq-1", True)


@pytest.mark.parametrize(
    ("to", "gone", "drained", "text"),
    [
        ("mq-2", [], [], "vhost 'shop' has a replica at broker 'mq-2' that is not in sync"),
        ("mq-3", [], [], "vhost 'shop' has no replica at broker 'mq-3'; choose one of mq-0, mq-1, mq-2"),
        ("mq-1", ["mq-1"], [], "broker 'mq-1' is not alive"),
        ("mq-1", [], ["mq-1"], "broker 'mq-1' is drained"),
    ],
)
def test_a_broker_that_cannot_lead_is_refused(to: str, gone: list[str], drained: list[str], text: str) -> None:
    world = World()
    world.gone, world.draining = set(map(BrokerName, gone)), set(map(BrokerName, drained))

    with pytest.raises(PreconditionFailedError, match=text):
        move(world, BROKERS[2], to)
    assert world.leaders[SHARD] == "mq-0"


def test_an_unknown_broker_and_an_unknown_virtual_host_are_not_found() -> None:
    world = World()

    with pytest.raises(NotFoundError, match="broker 'mq-9' not found"):
        move(world, BROKERS[0], "mq-9")
    with pytest.raises(NotFoundError, match="vhost 'bay' not found"):
        asyncio.run(world.views[BROKERS[0]].move(VhostName("bay"), "mq-1"))


def test_a_move_that_is_not_made_in_time_says_who_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "MOVE_S", 0.05)
    world = World()
    world.hosts[BROKERS[0]].is_stuck = True

    with pytest.raises(BusyError, match="vhost 'shop' is still led by broker 'mq-0'"):
        move(world, BROKERS[1], "mq-1")


def test_a_leader_that_does_not_answer_is_not_said_to_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A move to a leader that was killed, or stood still, was said to be done."""
    monkeypatch.setattr(moving, "MOVE_S", 0.05)
    world = World()
    world.leaders[SHARD] = BROKERS[1]
    world.silent = {BROKERS[1]}

    with pytest.raises(BusyError, match="vhost 'shop' is to be led by broker 'mq-1', which does not answer"):
        move(world, BROKERS[0], "mq-1")


def test_a_virtual_host_that_is_deleted_meanwhile_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()

    async def delete(*_: object) -> HandOver:
        world.vhosts = {}
        return HandOver.NOT_TAKEN

    monkeypatch.setattr(world.hosts[BROKERS[0]], "resign", delete)

    with pytest.raises(NotFoundError, match="vhost 'shop' not found"):
        move(world, BROKERS[0], "mq-1")


def place(world: World, source: str, to: str) -> tuple[list[str], bool]:
    placed = asyncio.run(world.views[BROKERS[3]].move_replica(VHOST, source, to))
    return list(placed.brokers), placed.is_changed


def test_a_replica_is_placed_on_another_broker_once() -> None:
    world = World()

    assert place(world, "mq-0", "mq-3") == (["mq-1", "mq-2", "mq-3"], True)
    assert place(world, "mq-0", "mq-3") == (["mq-1", "mq-2", "mq-3"], False)
    assert place(world, "", "mq-0") == (["mq-0", "mq-1", "mq-2", "mq-3"], True)
    assert place(world, "mq-1", "") == (["mq-0", "mq-2", "mq-3"], True)
    assert place(world, "mq-1", "") == (["mq-0", "mq-2", "mq-3"], False)
    status = asyncio.run(world.views[BROKERS[0]].status())
    assert [list(shard.placed) for shard in status.shards] == [[], ["mq-0", "mq-2", "mq-3"]]


def test_replicas_stay_where_a_move_makes_no_sense() -> None:
    world = World()
    world.gone = {BROKERS[3]}
    for source, to, error, text in [
        ("mq-0", "mq-0", InvalidArgumentError, "to the broker that has it"),
        ("", "", InvalidArgumentError, "to the broker that has it"),
        ("mq-0", "mq-1", PreconditionFailedError, "at both brokers, 'mq-0' and 'mq-1'"),
        ("mq-3", "mq-7", PreconditionFailedError, "no replica at broker 'mq-3'"),
        ("mq-0", "mq-7", NotFoundError, "broker 'mq-7' not found"),
        ("mq-0", "mq-3", PreconditionFailedError, "broker 'mq-3' is not alive"),
    ]:
        with pytest.raises(error, match=text):
            place(world, source, to)
    assert place(world, "mq-0", "")[0] == ["mq-1", "mq-2"]
    assert place(world, "mq-1", "")[0] == ["mq-2"]
    with pytest.raises(PreconditionFailedError, match="its only replica at broker 'mq-2'"):
        place(world, "mq-2", "")
