"""The owner task: order, rounds, one sync for many, faults, and its end."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence

import pytest

from penstock.metadata import VhostTopology
from penstock.metadata.commands import Command, ConnectionClosed, DeclareQueue, DeclareStream, DeleteQueue, QueueUnused
from penstock.metadata.effects import Done, PersistQueue
from penstock.model.errors import (
    DiskFullError,
    NotFoundError,
    NotWrittenError,
    PreconditionFailedError,
    StoppedError,
    StorageError,
    Thing,
)
from penstock.model.names import ConnectionId, ExchangeName, QueueId, QueueName, VhostName
from penstock.native import NewQueue, QueueCounts
from penstock.vhost.batches import Outcome
from penstock.vhost.owner import COMMANDS_WAITING_MAX, Owner
from support.vhost_fakes import FakeDefinitions, FakeShard, FakeShardError, Tasks

ME = ConnectionId(1)


class World:
    def __init__(self, shard: FakeShard | None = None) -> None:
        self.shard = shard or FakeShard()
        self.definitions = FakeDefinitions()
        self.tasks = Tasks()
        self.owner = Owner(VhostTopology(VhostName("/")), self.shard, self.definitions, retry_seconds=0)  # type: ignore[arg-type]

    def start(self) -> None:
        self.tasks.spawn(self.owner.run(), name="owner")

    async def submit_all(self, *commands: Command) -> list[object]:
        return await asyncio.gather(*(self.owner.submit(command) for command in commands), return_exceptions=True)


def play(scenario: Callable[[World], Awaitable[None]], shard: FakeShard | None = None) -> None:
    """Run a scenario with the owner's task started, and raise its bugs."""

    async def run() -> None:
        world = World(shard)
        world.start()
        await scenario(world)
        await world.tasks.end()

    asyncio.run(run())


def declare(name: str, **flags: object) -> DeclareQueue:
    return DeclareQueue(QueueName(name), ME, **flags)  # type: ignore[arg-type]


def test_commands_that_wait_together_share_one_sync() -> None:
    async def scenario(world: World) -> None:
        await world.submit_all(*(declare(f"q{index}") for index in range(100)))

        assert len(world.definitions.batches) == 1
        assert len(world.shard.queues) == 100

    play(scenario)


def test_what_arrives_during_a_sync_shares_the_next_one() -> None:
    async def scenario(world: World) -> None:
        world.definitions.hold()
        first = asyncio.ensure_future(world.owner.submit(declare("first")))
        await world.definitions.entered.wait()
        others = [asyncio.ensure_future(world.owner.submit(declare(f"q{index}"))) for index in range(10)]
        await asyncio.sleep(0)
        world.definitions.go()
        await asyncio.gather(first, *others)

        assert [len(batch) for batch in world.definitions.batches] == [1, 10]

    play(scenario)


def test_nothing_takes_effect_and_nothing_is_answered_before_it_is_on_the_disk() -> None:
    async def scenario(world: World) -> None:
        world.definitions.hold()
        declared = asyncio.ensure_future(world.owner.submit(declare("a")))
        await world.definitions.entered.wait()

        assert not declared.done()
        assert world.shard.queues == {}
        world.definitions.go()
        await declared
        assert world.shard.queues == {1: "a"}

    play(scenario)


def test_what_needs_no_writing_does_not_wait_for_the_disk() -> None:
    async def scenario(world: World) -> None:
        world.definitions.hold()

        await world.owner.submit(declare("fleeting", durable=False))

        assert world.definitions.batches == []

    play(scenario)


def test_commands_are_decided_in_the_order_in_which_they_came() -> None:
    async def scenario(world: World) -> None:
        results = await world.submit_all(
            declare("a"),
            declare("a", auto_delete=True),
            DeleteQueue(QueueName("a"), ME),
            DeleteQueue(QueueName("a"), ME),
        )

        assert isinstance(results[1], PreconditionFailedError)
        assert isinstance(results[3], NotFoundError)
        assert world.shard.queues == {}
        assert len(world.definitions.batches[0]) == 2

    play(scenario)


def test_a_refused_command_does_not_spoil_its_round() -> None:
    async def scenario(world: World) -> None:
        results = await world.submit_all(declare("a"), declare("amq.b"), declare("c"))

        assert [isinstance(result, Exception) for result in results] == [False, True, False]

    play(scenario)


def test_counts_are_looked_up_when_a_delete_depends_on_them() -> None:
    async def scenario(world: World) -> None:
        await world.owner.submit(declare("a"))
        world.shard.counts["a"] = QueueCounts(ready_count=3, unacked_count=2, consumer_count=1)

        with pytest.raises(PreconditionFailedError, match="holds 3 ready messages"):
            await world.owner.submit(DeleteQueue(QueueName("a"), ME, if_empty=True))
        with pytest.raises(PreconditionFailedError, match="has 1 consumers"):
            await world.owner.submit(DeleteQueue(QueueName("a"), ME, if_unused=True))
        world.shard.counts["a"] = QueueCounts(unacked_count=2)
        outcome = await world.owner.submit(DeleteQueue(QueueName("a"), ME, if_empty=True))

        assert outcome.dropped_count == 2, "unacked messages do not count"

    play(scenario)


def test_an_empty_queue_lets_nothing_in_while_its_deletion_is_written() -> None:
    async def scenario(world: World) -> None:
        await world.owner.submit(declare("a"))
        world.definitions.hold()
        deleted = asyncio.ensure_future(world.owner.submit(DeleteQueue(QueueName("a"), ME, if_empty=True)))
        await world.definitions.entered.wait()

        assert not deleted.done()
        assert world.shard.shut == {1}
        world.definitions.go()
        await deleted

    play(scenario)


def test_a_queue_that_is_not_deleted_after_all_lets_messages_in() -> None:
    async def scenario(world: World) -> None:
        await world.owner.submit(declare("a"))
        world.shard.counts["a"] = QueueCounts(consumer_count=1)

        with pytest.raises(PreconditionFailedError, match="has 1 consumers"):
            await world.owner.submit(DeleteQueue(QueueName("a"), ME, if_empty=True, if_unused=True))

        assert world.shard.shut == set()

    play(scenario)


def test_a_queue_whose_deletion_was_not_written_lets_messages_in() -> None:
    """It refused messages until a restart, although the deletion did not happen."""

    async def scenario(world: World) -> None:
        await world.submit_all(declare("a"), declare("b"))
        world.definitions.takes_back = True

        results = await world.submit_all(*(DeleteQueue(QueueName(name), ME, if_empty=True) for name in "ab"))

        assert [type(result) for result in results] == [NotWrittenError, NotWrittenError]
        assert world.shard.shut == set()
        assert len(world.shard.queues) == 2

    play(scenario)


def test_a_queue_whose_deletion_may_be_written_stays_shut() -> None:
    """The next start may delete it with its messages."""

    async def scenario(world: World) -> None:
        await world.owner.submit(declare("a"))
        world.definitions.fails = True

        with pytest.raises(StoppedError):
            await world.owner.submit(DeleteQueue(QueueName("a"), ME, if_empty=True))

        assert world.shard.shut == {1}

    play(scenario)


@pytest.mark.parametrize("command", [DeleteQueue(QueueName("a"), ME), QueueUnused(QueueName("a"), QueueId(1))])
def test_a_queue_whose_plain_deletion_may_be_written_takes_nothing_more(command: Command) -> None:
    """It confirmed messages, and the next start deleted it."""

    async def scenario(world: World) -> None:
        await world.submit_all(declare("a", auto_delete=True), declare("b"))
        world.definitions.fails = True

        with pytest.raises(StoppedError):
            await world.owner.submit(command)

        assert world.shard.shut == {1}

    play(scenario)


def test_queues_that_a_restart_ends_anyway_are_not_shut() -> None:
    async def scenario(world: World) -> None:
        await world.submit_all(declare("exclusive", exclusive=True), declare("fleeting", durable=False), declare("a"))
        world.definitions.fails = True

        await world.submit_all(
            ConnectionClosed(ME), DeleteQueue(QueueName("fleeting"), ME), DeleteQueue(QueueName("a"), ME)
        )

        assert world.shard.shut == {3}

    play(scenario)


class FailingShard(FakeShard):
    """Its disk fails when a round changes it."""

    def put_queues(self, queues: Sequence[NewQueue]) -> None:
        if self.queues:
            raise StorageError(Thing("log", "/"), "failed: Input/output error", "look at the disk")
        super().put_queues(queues)


def test_a_queue_that_a_round_deleted_before_it_failed_takes_nothing_more() -> None:
    """The definitions had the deletion, the engine did not, and confirmed messages."""

    async def scenario(world: World) -> None:
        await world.owner.submit(declare("jobs"))

        results = await world.submit_all(declare("own"), DeleteQueue(QueueName("jobs"), ME))

        assert all(isinstance(result, StoppedError) for result in results)
        assert world.shard.queues == {1: "jobs"}
        assert world.shard.shut == {1}

    play(scenario, FailingShard())


def test_a_queue_whose_log_finds_no_room_is_refused_alone() -> None:
    """It stopped the virtual host until a restart."""
    dedicated = DeclareQueue(QueueName("own"), ME, arguments={"x-dedicated": True})

    async def scenario(world: World) -> None:
        world.shard.dedicated_max = 0
        results = await world.submit_all(declare("a"), dedicated, declare("b"), DeleteQueue(QueueName("own"), ME))

        assert [type(result) for result in results] == [Outcome, DiskFullError, Outcome, NotFoundError]
        assert set(world.shard.queues.values()) == {"a", "b"}
        written = [entry.queue.name for entry in world.definitions.entries if isinstance(entry, PersistQueue)]
        assert written == ["a", "b"]
        world.owner.topology.check_invariants()
        world.shard.dedicated_max = 1
        await world.owner.submit(dedicated)
        assert "own" in world.shard.queues.values()

    play(scenario)


def test_a_stream_without_room_for_all_its_logs_leaves_nothing() -> None:
    stream = DeclareStream("s", 3, {"x-dedicated": True})

    async def scenario(world: World) -> None:
        await world.owner.submit(declare("a"))
        world.shard.dedicated_max = 2

        with pytest.raises(DiskFullError):
            await world.owner.submit(stream)

        assert world.shard.dedicated == set()
        assert list(world.owner.topology.queues) == ["a"]
        assert ExchangeName("s") not in world.owner.topology.exchanges
        world.owner.topology.check_invariants()
        world.shard.dedicated_max = 3
        await world.owner.submit(stream)
        assert len(world.shard.dedicated) == 3
        assert "s" in world.shard.exchanges

    play(scenario)


def test_a_log_is_made_before_its_queue_is_written_down() -> None:
    async def scenario(world: World) -> None:
        world.definitions.hold()
        declared = asyncio.ensure_future(
            world.owner.submit(DeclareQueue(QueueName("own"), ME, arguments={"x-dedicated": True}))
        )
        await world.definitions.entered.wait()

        assert world.shard.dedicated == {1}
        world.definitions.go()
        await declared

    play(scenario)


class BusyShard(FakeShard):
    """A message reaches every queue as soon as it exists."""

    def put_queue(self, queue_id: int, name: str, /, *, auto_delete: bool, level: str | None) -> None:
        super().put_queue(queue_id, name, auto_delete=auto_delete, level=level)
        self.counts[name] = QueueCounts(ready_count=1)


def test_what_reaches_a_queue_that_is_declared_and_deleted_at_once_is_not_deleted() -> None:
    """The decision used the counts of a queue that did not exist yet, and a confirmed message was deleted."""

    async def scenario(world: World) -> None:
        results = await world.submit_all(declare("a"), DeleteQueue(QueueName("a"), ME, if_empty=True))

        assert isinstance(results[1], PreconditionFailedError)
        assert world.shard.queues == {1: "a"}

    play(scenario, BusyShard())


def test_what_comes_after_a_deletion_that_waits_for_its_queue_keeps_its_order() -> None:
    async def scenario(world: World) -> None:
        again = (declare("a"), DeleteQueue(QueueName("a"), ME, if_empty=True))
        results = await world.submit_all(*again * 5, declare("b"), declare("a", auto_delete=True))

        assert not any(isinstance(result, Exception) for result in results)
        assert sorted(world.shard.queues.values()) == ["a", "b"]
        assert world.shard.auto_delete == {"a"}
        assert world.shard.shut <= set(range(1, 6))

    play(scenario)


def test_a_deletion_that_waits_for_its_queue_is_answered_when_the_vhost_stops() -> None:
    async def scenario(world: World) -> None:
        world.definitions.fails = True
        results = await world.submit_all(declare("a"), DeleteQueue(QueueName("a"), ME, if_empty=True))

        assert all(isinstance(result, StoppedError) for result in results)

    play(scenario)


def test_a_queue_of_the_same_round_is_empty() -> None:
    async def scenario(world: World) -> None:
        results = await world.submit_all(declare("a"), DeleteQueue(QueueName("a"), ME, if_empty=True, if_unused=True))

        assert not any(isinstance(result, Exception) for result in results)

    play(scenario)


def test_an_auto_delete_queue_with_a_new_consumer_stays() -> None:
    async def scenario(world: World) -> None:
        await world.owner.submit(declare("a", auto_delete=True))
        world.shard.counts["a"] = QueueCounts(consumer_count=1)

        outcome = await world.owner.submit(QueueUnused(QueueName("a"), QueueId(1)))

        assert outcome.answer == Done(0)
        assert world.shard.queues == {1: "a"}

    play(scenario)


def test_an_expired_queue_is_deleted_unless_it_was_used_meanwhile() -> None:
    async def scenario(world: World) -> None:
        for name in ("a", "b"):
            await world.owner.submit(declare(name, arguments={"x-expires": 1_000}))
        await world.owner.submit(declare("c"))
        world.shard.expired = {1, 2}
        assert world.shard.expires == {1: 1_000, 2: 1_000}

        await world.owner.submit(declare("a", arguments={"x-expires": 1_000}))
        await world.owner.submit(declare("c"))
        for name, number in (("a", 1), ("b", 2), ("c", 3)):
            await world.owner.submit(QueueUnused(QueueName(name), QueueId(number)))

        assert world.shard.queues == {1: "a", 3: "c"}, "'a' was declared again, and 'c' does not expire"
        world.shard.expired = {1}
        world.shard.counts["a"] = QueueCounts(consumer_count=1)
        await world.owner.submit(QueueUnused(QueueName("a"), QueueId(1)))
        assert world.shard.queues == {1: "a", 3: "c"}

    play(scenario)


def test_a_queue_that_has_the_name_of_one_that_is_unused_stays() -> None:
    """It was deleted with its confirmed messages when the consumer of its predecessor left late."""

    async def scenario(world: World) -> None:
        await world.owner.submit(declare("a", auto_delete=True))
        world.definitions.hold()
        replaced = asyncio.ensure_future(
            world.submit_all(DeleteQueue(QueueName("a"), ME), declare("a", auto_delete=True))
        )
        await world.definitions.entered.wait()
        left = asyncio.ensure_future(world.owner.submit(QueueUnused(QueueName("a"), QueueId(1))))
        await asyncio.sleep(0)
        world.definitions.go()

        await replaced
        assert (await left).answer == Done(0)
        assert world.shard.queues == {2: "a"}

    play(scenario)


def test_a_look_during_an_append_sees_the_committed_topology() -> None:
    """It waited for the disk, and new consumers with it."""

    async def scenario(world: World) -> None:
        await world.owner.submit(declare("a"))
        world.definitions.hold()
        declared = asyncio.ensure_future(world.owner.submit(declare("b")))
        deleted = asyncio.ensure_future(world.owner.submit(DeleteQueue(QueueName("a"), ME)))
        await world.definitions.entered.wait()

        assert await world.owner.read(lambda: list(world.owner.topology.queues)) == ["a"]
        assert await world.owner.read_engine(lambda: world.owner.counts([QueueName("a")])) == [QueueCounts()]

        world.definitions.go()
        await asyncio.gather(declared, deleted)
        assert await world.owner.read(lambda: list(world.owner.topology.queues)) == ["b"]

    play(scenario)


def test_a_look_at_the_engine_waits_while_the_engine_is_changed() -> None:
    entered, go_on = threading.Event(), threading.Event()

    class SlowShard(FakeShard):
        def delete_queue(self, queue_id: int, /) -> int:
            count = super().delete_queue(queue_id)
            entered.set()
            go_on.wait(60)
            return count

    async def scenario(world: World) -> None:
        await world.submit_all(declare("a"), declare("b"))
        deleted = asyncio.ensure_future(world.owner.submit(DeleteQueue(QueueName("a"), ME)))
        await asyncio.to_thread(entered.wait)
        seen = world.owner.read_engine(lambda: world.owner.counts(list(world.owner.topology.queues)))
        looked = asyncio.ensure_future(seen)
        await asyncio.sleep(0)
        assert not looked.done()

        go_on.set()

        assert await looked == [QueueCounts()]
        await deleted

    play(scenario, SlowShard())


def test_a_look_that_meets_a_fault_during_a_sync_does_not_stop_the_vhost() -> None:
    def look() -> None:
        raise StorageError(Thing("log", "/"), "failed: no file descriptors", "try again")

    async def scenario(world: World) -> None:
        world.definitions.hold()
        declared = asyncio.ensure_future(world.owner.submit(declare("a")))
        await world.definitions.entered.wait()
        world.shard.is_stalled = True
        looked = asyncio.ensure_future(world.owner.read_engine(look))
        await asyncio.sleep(0)
        world.shard.is_stalled = False
        world.definitions.go()

        with pytest.raises(StorageError, match="no file descriptors"):
            await looked
        await declared
        await world.owner.submit(declare("b"))
        assert world.owner.stopped is None

    play(scenario)


def test_a_caller_that_goes_away_does_not_take_its_command_back() -> None:
    async def scenario(world: World) -> None:
        world.definitions.hold()
        leaving = asyncio.ensure_future(world.owner.submit(declare("a")))
        await world.definitions.entered.wait()
        leaving.cancel()
        await asyncio.sleep(0)
        world.definitions.go()
        await world.owner.submit(declare("b"))

        assert sorted(world.shard.queues.values()) == ["a", "b"]

    play(scenario)


def test_a_fault_of_the_disk_stops_the_vhost_and_answers_everybody() -> None:
    async def scenario(world: World) -> None:
        world.definitions.fails = True
        world.definitions.hold()
        first = asyncio.ensure_future(world.owner.submit(declare("a")))
        await world.definitions.entered.wait()
        waiting = asyncio.ensure_future(world.owner.submit(declare("b")))
        await asyncio.sleep(0)
        world.definitions.go()
        results = await asyncio.gather(first, waiting, return_exceptions=True)

        assert all(isinstance(result, StoppedError) for result in results)
        assert "could not be synced" in str(results[0])
        assert world.shard.queues == {}
        with pytest.raises(StoppedError):
            await world.owner.submit(ConnectionClosed(ME))
        with pytest.raises(StoppedError):
            await world.owner.read(lambda: None)

    play(scenario)


def test_a_bug_stops_the_vhost_and_answers_everybody() -> None:
    async def run() -> None:
        world = World()
        world.shard.queues[1] = "a"
        world.start()

        result = await asyncio.gather(world.owner.submit(declare("a")), return_exceptions=True)
        ends = await asyncio.gather(*world.tasks.tasks, return_exceptions=True)

        assert isinstance(result[0], StoppedError)
        assert isinstance(ends[0], FakeShardError), "the bug reaches whoever supervises the task"

    asyncio.run(run())


def test_closing_decides_what_waits_and_takes_nothing_more() -> None:
    async def scenario(world: World) -> None:
        waiting = [asyncio.ensure_future(world.owner.submit(declare(f"q{index}"))) for index in range(3)]
        await asyncio.sleep(0)

        await world.owner.close("it was deleted")

        assert len(await asyncio.gather(*waiting)) == 3
        with pytest.raises(StoppedError, match="it was deleted"):
            await world.owner.submit(declare("late"))
        await world.owner.close("again")

    play(scenario)


def test_those_who_wait_outside_a_full_inbox_are_answered_too() -> None:
    async def scenario(world: World) -> None:
        world.definitions.fails = True
        calls = [
            asyncio.ensure_future(world.owner.submit(declare(f"q{index}"))) for index in range(COMMANDS_WAITING_MAX * 3)
        ]
        results = await asyncio.gather(*calls, return_exceptions=True)

        assert all(isinstance(result, StoppedError) for result in results)

    play(scenario)


def test_more_callers_than_the_inbox_holds_are_all_served() -> None:
    async def scenario(world: World) -> None:
        count = COMMANDS_WAITING_MAX * 2 + 1
        await world.submit_all(*(declare(f"q{index}") for index in range(count)))

        assert len(world.shard.queues) == count
        assert len(world.definitions.batches) <= 4

    play(scenario)
