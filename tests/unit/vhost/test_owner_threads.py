"""The owner's threads for work that may wait for its disk: which work runs there, and how many there are."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from penstock.kit.settings import THREADS_MAX, VHOST_THREADS_MAX
from penstock.kit.threads import use_threads
from penstock.metadata import VhostTopology, decide
from penstock.metadata.commands import Command, DeclareQueue, DeletePolicy, DeleteQueue, PurgeQueue, SetPolicy
from penstock.metadata.effects import Decision
from penstock.metadata.policies import Policy
from penstock.model.names import ConnectionId, QueueName, VhostName
from penstock.vhost.owner import Owner
from support.vhost_fakes import FakeDefinitions, FakeShard, Tasks

ME = ConnectionId(1)


class World:
    def __init__(self, shard: FakeShard) -> None:
        self.shard = shard
        self.owner = Owner(VhostTopology(VhostName("/")), shard, FakeDefinitions())  # type: ignore[arg-type]

    async def submit_all(self, *commands: Command) -> None:
        await asyncio.gather(*(self.owner.submit(command) for command in commands))


def play(scenario: Callable[[World], Awaitable[None]], shard: FakeShard | None = None) -> None:
    async def run() -> None:
        world, tasks = World(shard or FakeShard()), Tasks()
        tasks.spawn(world.owner.run(), name="owner")
        await scenario(world)
        await tasks.end()

    asyncio.run(run())


def declare(name: str) -> DeclareQueue:
    return DeclareQueue(QueueName(name), ME)


def test_what_may_wait_for_the_disk_is_not_done_on_the_event_loop() -> None:
    """A disk that hung during a deletion or a purge blocked every virtual host, and health checks."""
    threads: list[threading.Thread] = []

    class WatchedShard(FakeShard):
        def delete_queue(self, queue_id: int, /) -> int:
            threads.append(threading.current_thread())
            return super().delete_queue(queue_id)

        def purge_queue(self, queue_id: int, /) -> int:
            threads.append(threading.current_thread())
            return super().purge_queue(queue_id)

    async def scenario(world: World) -> None:
        await world.submit_all(declare("a"), declare("b"))
        await world.submit_all(PurgeQueue(QueueName("a"), ME), DeleteQueue(QueueName("b"), ME))

        assert len(threads) == 2
        assert threading.current_thread() not in threads

    play(scenario, WatchedShard())


def test_those_who_wait_for_one_vhost_s_disk_leave_threads_for_the_others() -> None:
    """Offsets that waited for a slow disk took all threads: no other vhost wrote its definitions."""

    async def scenario(world: World) -> None:
        use_threads(asyncio.get_running_loop())
        disk_goes_on, hung = threading.Event(), []

        def hang() -> None:
            hung.append(True)
            disk_goes_on.wait()

        waiting = [asyncio.ensure_future(world.owner.apart(hang)) for _ in range(THREADS_MAX + 1)]
        try:
            assert await asyncio.wait_for(asyncio.to_thread(lambda: "done"), 60) == "done"
            assert len(hung) <= VHOST_THREADS_MAX
        finally:
            disk_goes_on.set()
        await asyncio.gather(*waiting)
        assert len(hung) == THREADS_MAX + 1

    play(scenario)


def test_a_caller_that_goes_away_leaves_its_thread_its_place() -> None:
    """Callers that gave up and asked again took all threads, with one hanging disk."""

    async def scenario(world: World) -> None:
        go_on, running = threading.Event(), []

        def hang() -> None:
            running.append(True)
            go_on.wait(60)

        for _ in range(2 * VHOST_THREADS_MAX):
            given_up = asyncio.ensure_future(world.owner.apart(hang))
            await asyncio.sleep(0.01)
            given_up.cancel()
            await asyncio.wait([given_up])

        assert len(running) <= VHOST_THREADS_MAX
        go_on.set()

    play(scenario)


def test_policies_are_matched_with_all_names_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Liveness probes were not answered while a policy was set, cleared or restored."""
    threads: list[threading.Thread] = []

    def decide_and_note(state: VhostTopology, command: Command) -> Decision:
        threads.append(threading.current_thread())
        return decide(state, command)

    monkeypatch.setattr("penstock.vhost.batches.decide", decide_and_note)

    async def scenario(world: World) -> None:
        await world.submit_all(SetPolicy(Policy("p", "^a", {"durability": "disk"})), declare("b"), DeletePolicy("p"))

        setting, declaring, clearing = threads
        assert declaring is threading.current_thread()
        assert threading.current_thread() not in (setting, clearing)

    play(scenario)
