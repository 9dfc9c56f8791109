"""The owner when a batch cannot be committed.

The pending copy is dropped, the vhost goes on, and a full disk delays only commands that need space.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from penstock.metadata import VhostTopology, changes_of
from penstock.metadata.commands import (
    Bind,
    Command,
    ConnectionClosed,
    DeclareExchange,
    DeclareQueue,
    DeclareStream,
    DeleteQueue,
    QueueUnused,
    SetLimits,
    SetPolicy,
)
from penstock.metadata.effects import PersistLimits, PersistPolicies, PersistQueue, QueueDeclared
from penstock.metadata.policies import Policy
from penstock.model.errors import (
    DiskFullError,
    NotFoundError,
    NotWrittenError,
    PreconditionFailedError,
    StoppedError,
    StorageError,
    Thing,
)
from penstock.model.limits import Limits
from penstock.model.names import ConnectionId, ExchangeName, QueueName, RoutingKey, VhostName
from penstock.model.records import Binding, DestinationKind
from penstock.native import Shard
from penstock.vhost.apply import apply_changes
from penstock.vhost.batches import Outcome
from penstock.vhost.owner import DELAYED_MAX, Owner
from penstock.vhost.vhost import Vhost
from support.vhost_fakes import FakeDefinitions, FakeShard, Tasks, rights

ME, OTHER = ConnectionId(1), ConnectionId(5)


class World:
    def __init__(self) -> None:
        self.shard = FakeShard()
        self.definitions = FakeDefinitions()
        self.tasks = Tasks()
        topology = VhostTopology(VhostName("/"))
        shard = cast(Shard, self.shard)
        apply_changes(shard, changes_of(topology))
        self.owner = Owner(topology, shard, self.definitions, retry_seconds=0)
        self.vhost = Vhost(self.owner, lambda: "0123456789abcdefghijkl")

    @property
    def queues(self) -> list[str]:
        """Those that are committed; the engine must have the same."""
        names = list(self.owner.topology.queues)
        assert sorted(names) == sorted(self.shard.queues.values())
        return [str(name) for name in names]

    async def submit_all(self, *commands: Command) -> list[object]:
        return await asyncio.gather(*(self.owner.submit(command) for command in commands), return_exceptions=True)

    async def fill_disk(self) -> "asyncio.Future[Outcome]":
        """Return a declare that waits for space."""
        self.definitions.is_full = True
        waiting = asyncio.ensure_future(self.owner.submit(declare("late")))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not waiting.done()
        return waiting


def play(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        world = World()
        world.tasks.spawn(world.owner.run(), name="owner")
        await scenario(world)
        await world.tasks.end()

    asyncio.run(run())


def declare(name: str, connection: ConnectionId = ME, **flags: Any) -> DeclareQueue:
    return DeclareQueue(QueueName(name), connection, **flags)


def delete(name: str, **conditions: bool) -> DeleteQueue:
    return DeleteQueue(QueueName(name), ME, **conditions)


def test_a_consumer_is_admitted_while_a_declare_waits_for_space() -> None:
    """Only consumers make space, and none was admitted to the vhost."""

    async def scenario(world: World) -> None:
        await world.owner.submit(declare("letters"))
        waiting = await world.fill_disk()

        assert await asyncio.wait_for(world.vhost.admit_consume(rights(), QueueName("letters")), 10) == 1
        status = await asyncio.wait_for(world.vhost.queue_status(rights(), QueueName("letters")), 10)
        assert status.ready_count == 0
        again = await asyncio.wait_for(world.vhost.declare_queue(rights(), declare("letters")), 10)
        assert again.queue.name == "letters"

        assert not waiting.done()
        world.definitions.is_full = False
        await waiting
        assert world.queues == ["letters", "late"]

    play(scenario)


def test_a_connection_that_ends_loses_its_queues_while_a_declare_waits_for_space() -> None:
    async def scenario(world: World) -> None:
        await world.owner.submit(declare("mine", OTHER, exclusive=True))
        waiting = await world.fill_disk()

        await asyncio.wait_for(world.vhost.connection_closed(OTHER), 10)

        assert world.queues == []
        waiting.cancel()

    play(scenario)


async def bind_exclusive(world: World) -> None:
    """Bind the exclusive queue of another connection to a durable exchange, which goes with it."""
    exchange, name = ExchangeName("last"), QueueName("mine")
    binding = Binding(exchange, DestinationKind.QUEUE, name, RoutingKey("k"))
    await world.owner.submit(declare(name, OTHER, exclusive=True))
    await world.owner.submit(DeclareExchange(exchange, auto_delete=True))
    await world.owner.submit(Bind(binding, OTHER))


async def settle() -> None:
    for _ in range(1_000):
        await asyncio.sleep(0)


@pytest.mark.parametrize("fault", ["takes_back", "is_full"])
def test_a_connection_that_ends_loses_its_queues_as_soon_as_the_disk_takes_that(fault: str) -> None:
    """The queue stayed, locked, until a restart: no client repeats this command."""

    async def scenario(world: World) -> None:
        await bind_exclusive(world)
        world.owner._retry_seconds = 3_600  # the disk is tried again when this test says so
        waiting = []
        if fault == "takes_back":
            world.definitions.takes_back = True
        else:
            world.definitions.full_count = 1_000_000
            waiting = [
                asyncio.ensure_future(world.owner.submit(declare(f"q{number}"))) for number in range(DELAYED_MAX)
            ]
            await settle()
        closed = asyncio.ensure_future(world.vhost.connection_closed(OTHER))
        await settle()
        assert not closed.done()
        assert "mine" in world.queues

        for each in waiting:
            each.cancel()
        world.definitions.takes_back, world.definitions.full_count = False, 0
        world.owner._retry_at = 0.0
        await world.owner.submit(declare("other", durable=False))
        await asyncio.wait_for(closed, 10)
        assert world.queues == ["other"]
        assert "last" not in world.shard.exchanges

    play(scenario)


def test_an_unused_queue_goes_as_soon_as_the_disk_takes_that_and_waits_once() -> None:
    async def scenario(world: World) -> None:
        await world.owner.submit(declare("a", auto_delete=True))
        unused = QueueUnused(QueueName("a"), world.owner.topology.queues[QueueName("a")].id)
        world.owner._retry_seconds = 3_600
        world.definitions.takes_back = True
        calls = [asyncio.ensure_future(world.owner.submit(unused)) for _ in range(3)]
        await settle()
        assert [call.done() for call in calls] == [False, True, True]
        await world.submit_all(declare("b"))
        assert world.queues == ["a"], "others are not kept waiting"

        world.definitions.takes_back = False
        world.owner._retry_at = 0.0
        await world.owner.submit(declare("other", durable=False))
        await asyncio.wait_for(calls[0], 10)
        assert world.queues == ["other"]

    play(scenario)


def test_a_cleaning_command_that_cannot_be_written_delays_no_declare_that_can() -> None:
    async def scenario(world: World) -> None:
        await bind_exclusive(world)
        world.definitions.takes_back = True
        closed = asyncio.ensure_future(world.owner.submit(ConnectionClosed(OTHER)))
        await settle()
        assert not closed.done()
        assert world.owner.stopped is None
        await world.owner.close("the broker stops")
        with pytest.raises(StoppedError):
            await closed

    play(scenario)


def test_what_needs_no_space_goes_on_while_a_declare_waits() -> None:
    async def scenario(world: World) -> None:
        await world.submit_all(declare("a"), declare("b"), DeclareExchange(ExchangeName("x")))
        waiting = await world.fill_disk()

        results = await asyncio.wait_for(
            world.submit_all(
                declare("fleeting", durable=False),
                delete("a"),
                delete("b", if_empty=True),
                delete("never"),
                declare("fleeting", auto_delete=True),
            ),
            10,
        )

        kinds = [type(result) for result in results]
        assert kinds == [Outcome, Outcome, Outcome, NotFoundError, PreconditionFailedError]
        assert world.queues == ["fleeting"]
        assert not waiting.done()
        world.definitions.is_full = False
        await waiting

    play(scenario)


def test_a_deletion_that_finds_no_space_either_waits_and_its_queue_takes_messages() -> None:
    async def scenario(world: World) -> None:
        world.owner._retry_seconds = 3_600  # the disk is tried again when this test says so
        await world.owner.submit(declare("a"))
        world.definitions.full_count = 2
        deleted = asyncio.ensure_future(world.owner.submit(delete("a", if_empty=True)))
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert world.definitions.full_count == 0
        await world.owner.submit(declare("fleeting", durable=False))

        assert not deleted.done()
        assert world.queues == ["a", "fleeting"]
        assert world.shard.shut == set()
        world.owner._retry_at = 0.0
        await world.owner.submit(declare("other", durable=False))
        await deleted
        assert world.queues == ["fleeting", "other"]

    play(scenario)


def test_commands_that_waited_for_space_are_decided_in_their_order() -> None:
    key = RoutingKey("k")
    bind = Bind(Binding(ExchangeName("amq.direct"), DestinationKind.QUEUE, QueueName("a"), key), ME)

    async def scenario(world: World) -> None:
        world.definitions.full_count = 3
        results = await world.submit_all(declare("a"), declare("b"))
        assert [type(result) for result in results] == [Outcome, Outcome]
        assert [len(batch) for batch in world.definitions.batches] == [1, 1], "the first finds out for the others"

        world.definitions.full_count = 2
        await world.submit_all(declare("c"), bind, declare("d"))
        assert world.queues == ["a", "b", "c", "d"]
        assert world.shard.route("amq.direct", "k") == ["a"]

    play(scenario)


def test_a_caller_that_leaves_while_it_waits_for_space_revokes_its_command() -> None:
    async def scenario(world: World) -> None:
        waiting = await world.fill_disk()
        waiting.cancel()
        world.definitions.is_full = False

        await world.owner.submit(declare("other"))

        assert world.queues == ["other"]

    play(scenario)


def test_more_commands_than_may_wait_for_space_are_refused() -> None:
    async def scenario(world: World) -> None:
        world.owner._retry_seconds = 3_600  # they all arrive before the disk is tried again
        world.definitions.is_full = True
        calls = [asyncio.ensure_future(world.owner.submit(declare(f"q{number}"))) for number in range(DELAYED_MAX + 2)]
        done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED, timeout=60)

        assert {type(call.exception()) for call in done} == {DiskFullError}
        await asyncio.sleep(0)
        assert sum(call.done() for call in calls) == 2

    play(scenario)


def test_a_batch_that_was_not_written_leaves_the_vhost_as_it_was() -> None:
    """The vhost stopped until a restart."""

    async def scenario(world: World) -> None:
        await world.submit_all(declare("a"), DeclareExchange(ExchangeName("x")))
        world.definitions.takes_back = True
        results = await world.submit_all(declare("b"), delete("a"), declare("fleeting", durable=False), declare("b"))

        kinds = [type(result) for result in results]
        assert kinds == [NotWrittenError, NotWrittenError, Outcome, NotWrittenError]
        assert world.queues == ["a", "fleeting"]
        world.owner.topology.check_invariants()
        assert world.owner.stopped is None

        world.definitions.takes_back = False
        await world.owner.submit(declare("b"))
        assert world.queues == ["a", "fleeting", "b"]

    play(scenario)


def test_a_log_of_a_queue_that_was_not_written_is_removed() -> None:
    own = DeclareQueue(QueueName("own"), ME, arguments={"x-dedicated": True})

    async def scenario(world: World) -> None:
        world.definitions.takes_back = True
        with pytest.raises(NotWrittenError):
            await world.owner.submit(own)
        assert world.shard.dedicated == set()

        world.definitions.takes_back = False
        outcome = await world.owner.submit(own)
        assert isinstance(outcome.answer, QueueDeclared)
        assert outcome.answer.queue.id == 2, "the id of a log is not given again"
        assert world.shard.dedicated == {2}

    play(scenario)


def test_logs_of_a_stream_that_was_refused_for_space_cannot_stop_the_vhost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The vhost stopped when one of the logs could not be removed again, and gave their ids again."""
    stream = DeclareStream("s", partition_count=3, arguments={"x-dedicated": True})

    async def scenario(world: World) -> None:
        def fail(_: int) -> int:
            raise StorageError(Thing("log", "1"), "cannot be removed", "look at the disk")

        world.shard.dedicated_max = 2
        with monkeypatch.context() as patch:
            patch.setattr(world.shard, "delete_queue", fail)
            with pytest.raises(DiskFullError):
                await world.owner.submit(stream)
        assert world.owner.stopped is None
        outcome = await world.owner.submit(declare("a"))
        assert isinstance(outcome.answer, QueueDeclared)
        assert outcome.answer.queue.id == 4, "the id of a log is not given again"

    play(scenario)


def test_ids_of_logs_that_were_removed_are_not_given_again_when_the_batch_is_dropped() -> None:
    stream = DeclareStream("s", partition_count=3, arguments={"x-dedicated": True})

    async def scenario(world: World) -> None:
        world.shard.dedicated_max = 2
        world.definitions.takes_back = True
        results = await world.submit_all(declare("a"), stream)
        assert [type(result) for result in results] == [NotWrittenError, DiskFullError]
        made = world.owner.topology.next_queue_id
        assert made >= 5, "a's id, and those of three partitions"
        assert world.shard.dedicated == set()

    play(scenario)


def test_a_file_that_is_closed_stops_the_vhost_and_shuts_no_queue() -> None:
    async def scenario(world: World) -> None:
        await world.owner.submit(declare("a"))
        world.definitions.is_closed = True

        with pytest.raises(StoppedError, match="takes no more entries"):
            await world.owner.submit(delete("a", if_empty=True))

        assert world.shard.shut == set()

    play(scenario)


def test_policies_and_limits_are_appended_alone() -> None:
    """Their files and the definitions cannot be written in one step, and a batch is written whole or not at all."""

    async def scenario(world: World) -> None:
        await world.submit_all(
            declare("a"),
            SetPolicy(Policy("p", "^z", {"durability": "disk"})),
            SetLimits(Limits(queues_max=5)),
            declare("b"),
        )

        kinds = [[type(entry) for entry in batch] for batch in world.definitions.batches]
        assert kinds == [[PersistQueue], [PersistPolicies], [PersistLimits], [PersistQueue]]

    play(scenario)


def test_a_policy_that_was_not_written_has_no_effect() -> None:
    async def scenario(world: World) -> None:
        await world.owner.submit(declare("a"))
        world.definitions.takes_back = True

        with pytest.raises(NotWrittenError):
            await world.owner.submit(SetPolicy(Policy("p", "^a", {"durability": "disk"})))

        assert world.owner.topology.policies == {}
        assert world.shard.levels == {"a": None}

    play(scenario)


def test_what_was_decided_waits_for_room_on_a_full_disk() -> None:
    async def scenario(world: World) -> None:
        world.definitions.full_count = 3
        results = await world.submit_all(declare("a"), declare("b"))

        assert not any(isinstance(result, Exception) for result in results)
        assert list(world.shard.queues.values()) == ["a", "b"]
        await world.owner.submit(declare("c"))
        assert list(world.shard.queues.values()) == ["a", "b", "c"]

    play(scenario)


def test_a_vhost_that_closes_does_not_wait_for_room() -> None:
    async def scenario(world: World) -> None:
        world.definitions.full_count = 1_000_000
        asked = asyncio.ensure_future(world.owner.submit(declare("a")))
        await world.definitions.entered.wait()

        await world.owner.close("the broker stops")

        with pytest.raises(StoppedError):
            await asked
        assert world.shard.queues == {}

    play(scenario)


def test_a_queue_whose_plain_deletion_was_not_written_goes_on() -> None:
    async def scenario(world: World) -> None:
        await world.owner.submit(declare("a"))
        world.definitions.takes_back = True

        with pytest.raises(NotWrittenError):
            await world.owner.submit(delete("a"))

        assert world.shard.shut == set()
        assert list(world.owner.topology.queues) == ["a"]

    play(scenario)
