"""An operator recovers a shard, over brokers in memory: what is shown and changed, and what an interruption leaves."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.cluster.calls import NotCarriedOutError
from penstock.cluster.coordinator import Refused, Version, Versioned
from penstock.cluster.host import ClusterHost
from penstock.cluster.meta.member import MetaMember
from penstock.cluster.record import BrokerName, Leader, ShardRecord
from penstock.kit.clock import SystemClock
from penstock.model.errors import BusyError, NotFoundError, PreconditionFailedError
from penstock.model.names import VhostName
from penstock.native import ReplicaRole, ReplicaStanding
from penstock.node.in_cluster import recoveries
from penstock.node.in_cluster.cluster_view import ClusterView
from penstock.node.in_cluster.metadata import Metadata
from penstock.node.in_cluster.recoveries import Recoveries
from penstock.services.ports import RecoveredShard

VHOST, SHARD = VhostName("shop"), "shop.0.1"
A, B, C = (BrokerName(f"mq-{number}") for number in range(3))
REPLICA = {broker: f"{number:032x}" for number, broker in enumerate((A, B, C), start=1)}
BLANK = "b" * 32


class World:
    """A shard whose replicas in sync were those of A and B: A has a new disk, and B is gone. C is asked."""

    def __init__(self, tmp_path: Path) -> None:
        self.version = Version("v1")
        self.record: ShardRecord | None = ShardRecord(
            epoch=70,
            leader=Leader(broker=A, replica=REPLICA[A], boot=4),
            in_sync=(REPLICA[A], REPLICA[B]),
            replicas={replica: broker for broker, replica in REPLICA.items()},
            min_in_sync=2,
        )
        self.outcome: Refused | None = None
        self.is_stored = True
        self.elects = True
        self.views = {broker: self._view(broker, tmp_path) for broker in (A, C)}
        self.replicas = {A: standing(0, 0), C: standing(68, 1_000)}

    def _view(self, me: BrokerName, tmp_path: Path) -> Recoveries:
        state = SimpleNamespace(
            vhosts={VHOST: None},
            brokers=dict.fromkeys((A, B, C)),
            shards_of=lambda _: [SHARD],
            placement={SHARD: (A, B, C)},
        )
        member = FakeMember(self)
        self.members = {**getattr(self, "members", {}), me: member}
        view = ClusterView(
            "test",
            cast(ClusterHost, FakeHost(self, me)),
            cast(MetaMember, member),
            cast(Metadata, SimpleNamespace(me=me, state=state)),
            lambda broker: broker != B,
            lambda _: tmp_path,
        )
        return Recoveries(view, SystemClock())

    def recover(self, at: BrokerName, broker: BrokerName = C, *, accepts_loss: bool = True) -> RecoveredShard:
        return asyncio.run(self.views[at].recover(VHOST, 0, broker, "root", accepts_loss=accepts_loss))


def standing(log_epoch: int, end: int) -> ReplicaStanding:
    return ReplicaStanding(role=ReplicaRole(), committed=end, end=end, promised=log_epoch, log_epoch=log_epoch)


class FakeMember:
    def __init__(self, world: World) -> None:
        self._world = world
        self.handlers: dict[int, Callable[[bytes], Any]] = {}

    def answer(self, method: int, handler: Callable[[bytes], Any]) -> None:
        self.handlers[method] = handler

    async def call(self, broker: BrokerName, method: int, content: bytes) -> bytes:
        if broker not in self._world.views:
            raise NotCarriedOutError
        answer: bytes = await self._world.members[broker].handlers[method](content)
        return answer


class FakeHost:
    """The chosen replica is elected as soon as the record names it."""

    def __init__(self, world: World, me: BrokerName) -> None:
        self._world = world
        self._me = me
        self.me = SimpleNamespace(name=me)

    async def read_versioned(self, _: str) -> Versioned | None:
        record = self._world.record
        return None if record is None else Versioned(record, self._world.version)

    async def replace_record(self, _: str, base: Version | None, record: ShardRecord) -> Version | Refused:
        world = self._world
        if world.outcome is not Refused.CONFLICT and world.is_stored:
            assert base == (None if world.record is None else world.version)
            world.record, world.version = record, Version("v2")
        return world.outcome or world.version

    def hosted(self, _: str) -> Any:
        world, me = self._world, self._me

        async def now() -> ReplicaStanding:
            found, record = world.replicas[me], world.record
            leads = world.elects and record is not None and record.recoveries and record.leader.broker == me
            role = ReplicaRole(epoch=record.epoch + 1 if leads and record else None)
            return ReplicaStanding(
                role=role, committed=found.committed, end=found.end, promised=found.promised, log_epoch=found.log_epoch
            )

        return SimpleNamespace(replica=BLANK if me == A else REPLICA[me], standing=now)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(recoveries, "LEAD_S", 0.1)
    monkeypatch.setattr(recoveries, "LOOK_S", 0.01)
    return World(tmp_path)


@pytest.mark.parametrize("at", [A, C])
def test_without_the_operators_word_nothing_changes_and_what_is_left_is_shown(world: World, at: BrokerName) -> None:
    before = world.record

    found = world.recover(at, accepts_loss=False)

    assert world.record == before
    assert (found.problem, found.most, found.is_recovered) == ("", C, False)
    shown = {each.broker: (each.has_answered, each.id, each.end_bytes) for each in found.replicas}
    assert shown == {A: (True, BLANK, 0), B: (False, None, 0), C: (True, REPLICA[C], 1_000)}


@pytest.mark.parametrize("at", [A, C])
def test_any_broker_recovers_a_shard_once(world: World, at: BrokerName) -> None:
    first = world.recover(at)
    assert world.record is not None
    epoch = world.record.epoch
    assert (first.is_recovered, first.epoch) == (True, epoch + 1)

    second = world.recover(at)

    assert (second.is_recovered, second.epoch, world.record.epoch) == (False, epoch + 1, epoch)


def test_a_recovery_whose_broker_died_is_found_by_asking_another(world: World) -> None:
    world.outcome = Refused.UNKNOWN
    with pytest.raises(BusyError, match="may be recovered"):
        world.recover(A)

    assert (world.recover(C).is_recovered, len(world.record.recoveries if world.record else ())) == (False, 1)


def test_a_recovery_that_was_not_stored_is_asked_for_again(world: World) -> None:
    world.outcome, world.is_stored = Refused.UNKNOWN, False
    with pytest.raises(BusyError, match="may be recovered"):
        world.recover(A)

    world.outcome, world.is_stored = None, True
    assert world.recover(A).is_recovered


def test_a_record_that_was_changed_meanwhile_stays(world: World) -> None:
    before, world.outcome = world.record, Refused.CONFLICT

    with pytest.raises(BusyError, match="was not recovered: its record was changed meanwhile"):
        world.recover(A)
    assert world.record == before


def test_a_replica_that_is_not_elected_in_time_is_no_error(world: World) -> None:
    world.elects = False

    found = world.recover(A)

    assert (found.is_recovered, found.epoch) == (True, 0)


def test_what_is_not_to_be_recovered_is_refused_or_shown_with_the_reason(world: World) -> None:
    assert world.record is not None
    world.record = world.record.model_copy(update={"in_sync": (REPLICA[B], REPLICA[C])})

    with pytest.raises(PreconditionFailedError, match="in sync at broker 'mq-2', which answers"):
        world.recover(A)
    assert "which answers" in world.recover(A, accepts_loss=False).problem
    with pytest.raises(NotFoundError, match="broker 'mq-9' not found"):
        world.recover(A, BrokerName("mq-9"))


def test_a_record_that_the_coordinator_lost_is_made_again(world: World) -> None:
    world.record = None

    assert world.recover(A).is_recovered
    assert world.record is not None
    assert sorted(world.record.replicas.values()) == [A, B, C]
