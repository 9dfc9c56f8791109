"""Making, opening and deleting vhosts."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator

import pytest

from penstock.metadata import VhostTopology, changes_of
from penstock.metadata.commands import DeclareQueue
from penstock.metadata.effects import Change
from penstock.model.errors import (
    AccessRefusedError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionFailedError,
    StoppedError,
    StorageError,
    Thing,
)
from penstock.model.names import ConnectionId, ExchangeName, QueueName, RoutingKey, VhostName
from penstock.model.records import Binding, DestinationKind
from penstock.vhost.ports import OpenedVhost
from penstock.vhost.vhosts import Vhosts
from support.vhost_fakes import FakeStorage, Tasks, rights

BLUE = VhostName("blue")


class World:
    def __init__(self, storage: FakeStorage | None = None) -> None:
        self.storage = storage or FakeStorage()
        self.tasks = Tasks()
        self.vhosts = Vhosts(self.storage, self.tasks.spawn, lambda: "0123456789abcdefghijkl")


def play(scenario: Callable[[World], Awaitable[None]], storage: FakeStorage | None = None) -> None:
    async def run() -> None:
        world = World(storage)
        await scenario(world)
        await world.tasks.end()

    asyncio.run(run())


def queue(name: str, **flags: bool) -> DeclareQueue:
    return DeclareQueue(QueueName(name), ConnectionId(0), **flags)  # type: ignore[arg-type]


def test_a_made_vhost_is_there_and_making_it_again_does_nothing() -> None:
    async def scenario(world: World) -> None:
        assert await world.vhosts.create(rights(), "blue")
        assert not await world.vhosts.create(rights(), "blue")

        assert world.vhosts.names() == ["blue"]
        assert world.storage.order == ["blue"]
        assert set(world.storage.shards[BLUE].exchanges) == {
            "amq.direct",
            "amq.fanout",
            "amq.headers",
            "amq.match",
            "amq.topic",
        }

    play(scenario)


def test_only_administrators_make_and_delete() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(AccessRefusedError):
            await world.vhosts.create(rights(admin=False), "blue")
        await world.vhosts.create(rights(), "blue")
        with pytest.raises(AccessRefusedError):
            await world.vhosts.delete(rights(admin=False), BLUE)

    play(scenario)


def test_a_vhost_needs_a_name() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(InvalidArgumentError):
            await world.vhosts.create(rights(), "")

    play(scenario)


def test_a_vhost_that_is_not_there_is_not_found() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(NotFoundError, match="vhost 'blue' not found"):
            world.vhosts.get(BLUE)
        with pytest.raises(NotFoundError):
            await world.vhosts.delete(rights(), BLUE)

    play(scenario)


def test_vhosts_are_worlds_of_their_own() -> None:
    async def scenario(world: World) -> None:
        for name in ("blue", "red"):
            await world.vhosts.create(rights(), name)
        await world.vhosts.get(BLUE).declare_queue(rights(), queue("a"))

        with pytest.raises(NotFoundError):
            await world.vhosts.get(VhostName("red")).queue_status(rights(), QueueName("a"))

    play(scenario)


def test_a_start_finds_what_was_durable_and_tells_the_engine() -> None:
    storage = FakeStorage()

    async def before(world: World) -> None:
        await world.vhosts.create(rights(), "blue")
        vhost = world.vhosts.get(BLUE)
        for name in ("a", "b"):
            await vhost.declare_queue(rights(), queue(name))
        await vhost.declare_queue(rights(), queue("fleeting", durable=False))
        key = RoutingKey("web.#")
        await vhost.bind(rights(), Binding(ExchangeName("amq.topic"), DestinationKind.QUEUE, QueueName("b"), key))
        await vhost.delete_queue(rights(), QueueName("a"))

    async def after(world: World) -> None:
        await world.vhosts.open_all()

        shard = storage.shards[BLUE]
        assert shard.queues == {2: "b"}
        assert shard.retained == [2]
        assert shard.route("amq.topic", "web.error") == ["b"]
        await world.vhosts.get(BLUE).declare_queue(rights(), queue("c"))
        assert shard.queues[42] == "c", "one more than the highest number that file and log have named"

    play(before, storage)
    storage.highest_queue_id = 41
    play(after, storage)


def test_a_deleted_vhost_is_gone_and_can_be_made_afresh() -> None:
    async def scenario(world: World) -> None:
        await world.vhosts.create(rights(), "blue")
        old = world.vhosts.get(BLUE)
        await old.declare_queue(rights(), queue("a"))
        shard = world.storage.shards[BLUE]

        await world.vhosts.delete(rights(), BLUE)

        assert shard.is_closed
        assert world.vhosts.names() == world.storage.order == []
        with pytest.raises(StoppedError, match="it was deleted"):
            await old.declare_queue(rights(), queue("b"))
        await world.vhosts.create(rights(), "blue")
        assert await world.vhosts.get(BLUE).list_queues(rights()) == []

    play(scenario)


def test_a_vhost_whose_log_cannot_be_closed_is_deleted_all_the_same() -> None:
    async def scenario(world: World) -> None:
        await world.vhosts.create(rights(), "blue")
        shard = world.storage.shards[BLUE]

        def close(*, delete: bool) -> None:
            shard.is_closed = True
            raise StorageError(Thing("log", "blue"), "failed: a sync failed", "repair the disk")

        shard.close = close  # type: ignore[method-assign]

        await world.vhosts.delete(rights(), BLUE)

        assert world.storage.order == []

    play(scenario)


def test_a_vhost_that_is_being_copied_is_not_deleted() -> None:
    """The backup failed for missing files, and blamed its own directory."""

    async def scenario(world: World) -> None:
        await world.vhosts.create(rights(), "blue")
        with world.vhosts.keep() as kept:
            await world.vhosts.create(rights(), "red")
            with pytest.raises(PreconditionFailedError, match="is being copied by a backup"):
                await world.vhosts.delete(rights(), BLUE)
            await world.vhosts.delete(rights(), VhostName("red"))
        assert [vhost.name for vhost in kept] == ["blue"]

        await world.vhosts.delete(rights(), BLUE)
        assert world.vhosts.names() == []

    play(scenario)


def test_a_vhost_whose_copy_is_written_is_deleted_while_others_are_copied() -> None:
    """A vhost on a disk that hung forbade to delete every other one."""

    async def scenario(world: World) -> None:
        await world.vhosts.create(rights(), "blue")
        await world.vhosts.create(rights(), "red")
        with world.vhosts.keep():
            world.vhosts.release(BLUE)
            await world.vhosts.delete(rights(), BLUE)
            with pytest.raises(PreconditionFailedError, match="is being copied by a backup"):
                await world.vhosts.delete(rights(), VhostName("red"))

    play(scenario)


def test_no_backup_begins_while_a_deletion_begins() -> None:
    """It copied a vhost whose files went meanwhile."""

    class SlowStorage(FakeStorage):
        gate: asyncio.Event

        async def begin_deletion(self, name: VhostName) -> None:
            await self.gate.wait()
            await super().begin_deletion(name)

    storage = SlowStorage()

    async def scenario(world: World) -> None:
        storage.gate = asyncio.Event()
        await world.vhosts.create(rights(), "blue")
        await world.vhosts.create(rights(), "red")
        deleting = asyncio.ensure_future(world.vhosts.delete(rights(), BLUE))
        await asyncio.sleep(0)
        with pytest.raises(PreconditionFailedError, match="is being changed or deleted"), world.vhosts.keep():
            raise AssertionError("a backup began")
        storage.gate.set()
        await deleting

        with world.vhosts.keep() as kept:
            assert [vhost.name for vhost in kept] == ["red"]

    play(scenario, storage)


def test_two_changes_of_one_name_do_not_overlap() -> None:
    class SlowStorage(FakeStorage):
        gate: asyncio.Event

        async def create(self, name: VhostName, shard_count: int = 1) -> OpenedVhost:
            await self.gate.wait()
            return await super().create(name, shard_count)

    storage = SlowStorage()

    async def scenario(world: World) -> None:
        storage.gate = asyncio.Event()
        first = asyncio.ensure_future(world.vhosts.create(rights(), "blue"))
        await asyncio.sleep(0)
        with pytest.raises(PreconditionFailedError, match="being created, changed or deleted"):
            await world.vhosts.create(rights(), "blue")
        storage.gate.set()

        assert await first

    play(scenario, storage)


def test_a_closed_connection_loses_its_exclusive_queues_in_every_vhost() -> None:
    async def scenario(world: World) -> None:
        for name in ("blue", "red"):
            await world.vhosts.create(rights(), name)
            await world.vhosts.get(VhostName(name)).declare_queue(rights(5), queue("mine", exclusive=True))

        await world.vhosts.connection_closed(ConnectionId(5))

        assert all(shard.queues == {} for shard in world.storage.shards.values())

    play(scenario)


def test_a_vhost_that_waits_for_its_disk_keeps_no_other_waiting_when_a_connection_ends() -> None:
    """The queues of a closed connection stayed in all vhosts behind one whose disk hung."""

    async def scenario(world: World) -> None:
        for name in ("blue", "red"):
            await world.vhosts.create(rights(), name)
        blue, red = (world.vhosts.get(VhostName(name)) for name in ("blue", "red"))
        await red.declare_queue(rights(5), queue("mine", exclusive=True))
        world.storage.shards[BLUE].is_stalled = True
        waiting = asyncio.ensure_future(blue.declare_queue(rights(6), queue("late")))
        await asyncio.sleep(0)

        closing = asyncio.ensure_future(world.vhosts.connection_closed(ConnectionId(5)))
        for _ in range(10_000):
            if red.queue_count == 0:
                break
            await asyncio.sleep(0.001)

        assert red.queue_count == 0
        assert not closing.done()
        world.storage.shards[BLUE].is_stalled = False
        await asyncio.gather(waiting, closing)

    play(scenario)


def test_a_vhost_whose_log_failed_says_so_before_anybody_declares_something() -> None:
    async def scenario(world: World) -> None:
        await world.vhosts.create(rights(), "blue")
        assert world.vhosts.get(BLUE).fault is None

        world.storage.shards[BLUE].fault = "a sync failed"

        assert world.vhosts.get(BLUE).fault == "a sync failed"

    play(scenario)


def test_closing_ends_every_owner() -> None:
    async def scenario(world: World) -> None:
        await world.vhosts.create(rights(), "blue")
        await world.vhosts.close()

        assert world.vhosts.get(BLUE).fault == "the broker stops"
        assert all(task.done() for task in world.tasks.tasks)

    play(scenario)


def test_a_start_brings_the_engine_to_the_definitions_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """All names are matched with all policies, and health checks are answered meanwhile."""
    threads: list[threading.Thread] = []

    def changes_and_note(state: VhostTopology) -> Iterator[Change]:
        threads.append(threading.current_thread())
        yield from changes_of(state)

    async def scenario(world: World) -> None:
        await world.vhosts.create(rights(), "blue")
        monkeypatch.setattr("penstock.vhost.vhosts.changes_of", changes_and_note)

        await Vhosts(world.storage, world.tasks.spawn, lambda: "0123456789abcdefghijkl").open_all()

        assert len(threads) == 1
        assert threading.current_thread() not in threads
        assert "amq.topic" in world.storage.shards[BLUE].exchanges

    play(scenario)


def test_a_vhost_is_made_with_shards_and_gets_more_of_them() -> None:
    async def scenario(world: World) -> None:
        await world.vhosts.create(rights(), "blue", 2)
        vhost = world.vhosts.get(BLUE)
        assert (vhost.shard_count, world.storage.shards[BLUE].shard_count) == (2, 2)
        for name in "abcd":
            await vhost.declare_queue(rights(), queue(name))
        assert set(world.storage.shards[BLUE].homes.values()) == {0, 1}

        await world.vhosts.set_shard_count(rights(), BLUE, 4)
        await world.vhosts.set_shard_count(rights(), BLUE, 4)
        for name in "efgh":
            await vhost.declare_queue(rights(), queue(name))
        assert set(world.storage.shards[BLUE].homes.values()) == {0, 1, 2, 3}

        with pytest.raises(PreconditionFailedError, match="has 4 shards and cannot have 3"):
            await world.vhosts.set_shard_count(rights(), BLUE, 3)
        with pytest.raises(InvalidArgumentError, match="from 1 to 64"):
            await world.vhosts.create(rights(), "red", 65)
        with pytest.raises(AccessRefusedError):
            await world.vhosts.set_shard_count(rights(admin=False), BLUE, 5)
        with pytest.raises(NotFoundError):
            await world.vhosts.set_shard_count(rights(), VhostName("red"), 5)
        assert world.vhosts.names() == ["blue"]

    play(scenario)


def test_a_vhost_gets_no_shards_while_a_backup_copies_it() -> None:
    async def scenario(world: World) -> None:
        await world.vhosts.create(rights(), "blue")
        with world.vhosts.keep():
            with pytest.raises(PreconditionFailedError, match="is being copied by a backup"):
                await world.vhosts.set_shard_count(rights(), BLUE, 2)
            world.vhosts.release(BLUE)
            await world.vhosts.set_shard_count(rights(), BLUE, 2)

    play(scenario)
