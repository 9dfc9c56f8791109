"""The owner beside a shard that waits for its disk: which calls have to wait for it, and for which work."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

from penstock.metadata import VhostTopology
from penstock.metadata.commands import DeclareQueue
from penstock.model.names import ConnectionId, QueueName, VhostName
from penstock.native import QueueCounts
from penstock.vhost.owner import Owner
from support.vhost_fakes import FakeBackup, FakeDefinitions, FakeShard, Tasks


class World:
    def __init__(self) -> None:
        self.shard = FakeShard()
        self.owner = Owner(VhostTopology(VhostName("/")), self.shard, FakeDefinitions(), retry_seconds=0)  # type: ignore[arg-type]


def play(scenario: Callable[[World], Awaitable[None]]) -> None:
    """Run a scenario with the owner's task started, and raise its bugs."""

    async def run() -> None:
        world, tasks = World(), Tasks()
        tasks.spawn(world.owner.run(), name="owner")
        await world.owner.submit(declare("q"))
        await scenario(world)
        await tasks.end()

    asyncio.run(run())


def declare(name: str) -> DeclareQueue:
    return DeclareQueue(QueueName(name), ConnectionId(1))


def test_a_shard_that_stalls_is_waited_for_without_holding_up_the_event_loop() -> None:
    async def scenario(world: World) -> None:
        world.shard.is_stalled = True
        declared = asyncio.ensure_future(world.owner.submit(declare("other")))
        counted = asyncio.ensure_future(world.owner.read_engine(lambda: world.owner.counts([QueueName("q")])))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not declared.done()
        assert not counted.done()
        assert len(world.shard.queues) == 1

        world.shard.is_stalled = False

        assert await counted == [QueueCounts()]
        await declared
        assert len(world.shard.queues) == 2

    play(scenario)


def test_a_look_at_the_topology_alone_does_not_wait_for_a_shard_that_stalls() -> None:
    """Each admission to a virtual host on a slow disk blocked the event loop for a lock that it did not need.

    All other virtual hosts were blocked with it.
    """

    async def scenario(world: World) -> None:
        world.shard.is_stalled = True

        looked = world.owner.read(lambda: list(world.owner.topology.queues))

        assert await asyncio.wait_for(looked, timeout=10) == ["q"]
        world.shard.is_stalled = False

    play(scenario)


def test_a_backup_that_waits_for_the_disk_holds_up_its_virtual_host_alone() -> None:
    async def scenario(world: World) -> None:
        go_on, begun, begin_backup = threading.Event(), threading.Event(), world.shard.begin_backup

        def hang() -> FakeBackup:
            begun.set()
            go_on.wait(60)
            return begin_backup()

        world.shard.begin_backup = hang  # type: ignore[method-assign]
        backup = asyncio.ensure_future(world.owner.begin_backup())
        await asyncio.to_thread(begun.wait)
        declared = asyncio.ensure_future(world.owner.submit(declare("other")))
        await asyncio.sleep(0.01)
        assert len(world.shard.queues) == 1

        go_on.set()
        await backup
        await declared
        assert len(world.shard.queues) == 2

    play(scenario)
