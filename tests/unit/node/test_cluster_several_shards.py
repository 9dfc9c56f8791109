"""A virtual host with several shards at one broker: its term, and shards that are to be led by another one."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.cluster.host import ClusterHost, ReplicaOptions
from penstock.cluster.record import BrokerName
from penstock.cluster.shard_calls import HandOver
from penstock.metadata import VhostTopology
from penstock.metadata.effects import PutQueue
from penstock.model.errors import NotLedError, StorageError, Thing
from penstock.model.names import QueueId, QueueName, VhostName
from penstock.model.records import Queue
from penstock.native import Engine, ReplicaRole
from penstock.node.in_cluster import replica as replica_module
from penstock.node.in_cluster.log_copies import LogCopies
from penstock.node.in_cluster.metadata import Metadata
from penstock.node.in_cluster.owner import ClusterOwner
from penstock.node.in_cluster.replica import VhostPlace, VhostReplica
from penstock.node.in_cluster.shard_replica import ReplicaSurroundings
from support.vhost_fakes import FakeShard

ME, OTHER, NAME = BrokerName("mq-0"), BrokerName("mq-1"), VhostName("shop")
SHARDS, FOURTH = ["shop.0.1", "shop.1.1", "shop.2.1"], "shop.3.1"
ORDERS = Queue(QueueId(7), QueueName("orders"), shard=3)
SECONDS_MAX = 60
"""Only ends a test that would otherwise never end."""


class Queues(FakeShard):
    """The queues of a term."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = [0]
        self.counted = 0
        self.is_over = False

    def count_shards(self, count: int) -> None:
        self.counted = self.shard_count = count

    def end_term(self) -> None:
        self.is_over = True


class FakeReplica:
    def __init__(self, shard: str) -> None:
        self.shard = shard.encode()
        self.role = ReplicaRole()
        self.changed = asyncio.Event()
        self.heard: Callable[[], None] = lambda: None
        self.opened: list[Queues] = []
        self.fails = False

    def wake(self) -> None:
        """Nothing waits for it."""

    def leads(self, epoch: int | None) -> None:
        self.role = ReplicaRole(epoch=epoch, appends=epoch is not None, delivers=epoch is not None)
        self.heard()

    async def lead(self, _: Engine, vhost: VhostName, epoch: int) -> Queues:
        assert (vhost, epoch) == (NAME, self.role.epoch)
        self.opened.append(Queues())
        return self.opened[-1]

    async def lead_further(self, _: Engine, vhost: Queues, number: int, epoch: int) -> bool:
        assert epoch == self.role.epoch
        if self.fails:
            raise StorageError(Thing("log", "shop"), "cannot be read", "replace the disk")
        vhost.numbers.append(number)
        return True


class World:
    """The replicas of this broker. `chosen` is the broker that is to lead all, `first_leader` leads the first shard."""

    def __init__(self, directory: Path) -> None:
        self.me = SimpleNamespace(name=ME)
        self.draining: frozenset[BrokerName] = frozenset()
        self.replicas = {shard: FakeReplica(shard) for shard in SHARDS}
        self.chosen: BrokerName | None = ME
        self.first_leader: BrokerName | None = ME
        self.epochs = (5, 6, 7)
        self.resigned: list[tuple[bytes, BrokerName | None]] = []
        metadata = cast(Metadata, SimpleNamespace(me=ME, latest=self.latest))
        around = ReplicaSurroundings(
            cast(ClusterHost, self), cast(Engine, None), ReplicaOptions(), cast(LogCopies, None), self.ask
        )
        self.replica = VhostReplica(around, VhostPlace(NAME, SHARDS, directory, (ME, OTHER)))
        self.owner = self.replica.owner = ClusterOwner(VhostTopology(NAME), metadata, self.replica)
        self.running = asyncio.ensure_future(self.replica.run(metadata, lambda _: None))

    async def latest(self) -> None:
        """There is nothing new."""

    async def ask(self, *_: Any) -> tuple[()]:
        return ()

    def group(self, shards: Sequence[str]) -> None:
        assert list(shards[:3]) == SHARDS

    def is_connected(self, _: BrokerName) -> bool:
        return True

    async def open(self, shard: str, *_: Any) -> FakeReplica:
        return self.replicas[shard]

    async def place(self, *_: Any) -> None:
        """Be told of the brokers."""

    def leader_name(self, shard: bytes) -> BrokerName | None:
        return self.first_leader if shard == SHARDS[0].encode() else ME

    def epochs_of_group(self, _: bytes) -> tuple[int, ...]:
        return self.epochs

    def leader_of_group(self, _: bytes) -> BrokerName | None:
        return self.chosen

    def heirs_of(self, _: bytes) -> dict[str, BrokerName]:
        return {"b" * 32: OTHER}

    async def resign(self, replica: FakeReplica, to: BrokerName | None = None) -> HandOver:
        self.resigned.append((replica.shard, to))
        replica.leads(None)
        return HandOver.DONE

    def grow(self) -> FakeReplica:
        """Have a fourth shard."""
        self.replicas[FOURTH] = FakeReplica(FOURTH)
        self.replica.grow([*SHARDS, FOURTH])
        return self.replicas[FOURTH]

    def leads(self, *epochs: int | None) -> None:
        for replica, epoch in zip(self.replicas.values(), epochs, strict=False):
            replica.leads(epoch)

    def queues(self) -> Queues | None:
        try:
            return cast(Queues, self.owner.shard)
        except NotLedError:
            return None


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_module, "LOOK_S", 0.01)
    monkeypatch.setattr(replica_module, "SETTLED_S", 0.01)


def run(directory: Path, scenario: Callable[[World], Any]) -> None:
    async def running() -> None:
        world = World(directory)
        await world.replica.opened()
        await scenario(world)
        assert not world.running.done()
        world.running.cancel()

    asyncio.run(asyncio.wait_for(running(), SECONDS_MAX))


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 (what changes has no event)
        await asyncio.sleep(0.005)


async def turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def test_a_term_begins_when_all_shards_are_led_and_ends_with_one(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.leads(5, None, 7)
        await turns()
        assert world.queues() is None

        world.leads(5, 6, 7)

        await until(lambda: world.queues() is not None)
        first = world.queues()
        assert first is not None
        assert (sorted(first.numbers), first.counted) == ([0, 1, 2], 3)
        world.leads(5, 6, None)
        await until(lambda: world.queues() is None)
        world.leads(5, 6, 9)
        await until(lambda: world.queues() is not None)
        assert world.queues() is not first, "the queues are those of another term, also where the epochs are the same"

    run(tmp_path, scenario)


def test_queues_are_closed_again_when_a_shard_cannot_be_opened(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        first, second, _ = world.replicas.values()
        second.fails = True

        world.leads(5, 6, 7)

        await until(lambda: len(first.opened) >= 2)
        assert first.opened[0].is_over
        second.fails = False
        await until(lambda: world.queues() is not None)

    run(tmp_path, scenario)


def test_further_shards_are_handed_over_to_the_leader_of_the_first_one(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.chosen, world.first_leader = OTHER, None
        world.leads(None, 6, 7)
        await turns()
        assert world.resigned == [], "it is not known who leads the first one"

        world.first_leader = OTHER
        world.replicas[SHARDS[0]].heard()

        await until(lambda: len(world.resigned) == 2)
        assert world.resigned == [(shard.encode(), OTHER) for shard in SHARDS[1:]]

    run(tmp_path, scenario)


def test_shards_stay_where_they_are_while_others_are_elected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record of the first one may name a leader that is missed; waiting for it took two seconds."""
    monkeypatch.setattr(replica_module, "SETTLED_S", SECONDS_MAX)

    async def scenario(world: World) -> None:
        world.chosen = world.first_leader = OTHER
        world.leads(None, 6, 7)
        await asyncio.sleep(0.05)
        assert world.resigned == []

        monkeypatch.setattr(replica_module, "SETTLED_S", 0.0)
        await until(lambda: len(world.resigned) == 2)

    run(tmp_path, scenario)


def test_shards_stay_where_they_are_while_the_leader_of_the_first_one_cannot_lead_all(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.chosen, world.first_leader = ME, OTHER
        world.leads(None, 6, 7)
        await turns()
        world.chosen = None
        world.leads(None, 6, 7)
        await turns()
        assert world.resigned == []

    run(tmp_path, scenario)


def test_the_leader_of_the_first_shard_hands_it_over_when_it_cannot_lead_all(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.chosen = OTHER
        world.leads(5, None, None)

        await until(lambda: world.resigned == [(SHARDS[0].encode(), None)])

    run(tmp_path, scenario)


def test_a_shard_that_is_added_joins_the_term_and_changes_wait_for_it(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.leads(5, 6, 7)
        await until(lambda: world.queues() is not None)
        queues = world.queues()
        assert queues is not None

        fourth = world.grow()
        world.replica.take([PutQueue(ORDERS)])
        await turns()
        assert (world.queues(), queues.queues, queues.counted) == (queues, {}, 3), "the term goes on"

        fourth.fails = True
        fourth.leads(8)
        await turns()
        assert queues.queues == {}
        fourth.fails = False
        await until(lambda: queues.queues == {7: "orders"})
        assert (world.queues(), sorted(queues.numbers), queues.counted) == (queues, [0, 1, 2, 3], 4)
        fourth.leads(None)
        await until(lambda: world.queues() is None)

    run(tmp_path, scenario)


def test_a_term_begins_with_the_shards_that_were_added_before(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        fourth = world.grow()
        world.leads(5, 6, 7)
        await turns()
        assert world.queues() is None

        fourth.leads(8)

        await until(lambda: world.queues() is not None)
        queues = world.queues()
        assert queues is not None
        assert (sorted(queues.numbers), queues.counted) == ([0, 1, 2, 3], 4)

    run(tmp_path, scenario)


def test_a_broker_with_a_halted_replica_leads_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_step(*_: object) -> None:
        return None

    monkeypatch.setattr("penstock.node.in_cluster.shard_replica.step_after_halt", no_step)

    async def scenario(world: World) -> None:
        world.leads(5, 6, 7)
        await until(lambda: world.queues() is not None)
        halted = world.replicas[SHARDS[2]]
        halted.role = ReplicaRole(halted="the disk failed", halt="disk")
        changed, halted.changed = halted.changed, asyncio.Event()
        changed.set()
        halted.heard()

        await until(lambda: world.resigned == [(shard.encode(), None) for shard in SHARDS[:2]])
        assert world.replica.fault == "the disk failed"
        assert world.queues() is None

    run(tmp_path, scenario)
