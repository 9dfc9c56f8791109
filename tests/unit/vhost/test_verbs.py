"""The verbs: their permissions and answers."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.kit.settings import PAGE_SIZE_MAX
from penstock.metadata import VhostTopology, changes_of
from penstock.metadata.commands import DeclareExchange, DeclareQueue, DeclareStream
from penstock.model.errors import AccessRefusedError, LockedError, NotFoundError, PreconditionFailedError
from penstock.model.names import ConnectionId, ExchangeName, QueueId, QueueName, RoutingKey, UserName, VhostName
from penstock.model.records import Access, Binding, DestinationKind
from penstock.native import QueueCounts, StageState
from penstock.vhost.apply import apply_changes
from penstock.vhost.owner import Owner
from penstock.vhost.rights import Rights
from penstock.vhost.vhost import Vhost
from support.vhost_fakes import FakeDefinitions, FakeShard, NamesAllowed, Tasks, rights

TOKEN = "0123456789abcdefghijkl"
NOBODY = rights(permissions=None)


class Asked:
    """Permissions that allow everything, and record the kind and the name of each check."""

    def __init__(self) -> None:
        self.things: list[tuple[str, str]] = []

    def allows(self, _access: Access, name: str, kind: str = "") -> bool:
        self.things.append((kind, name))
        return True

    def narrows_keys(self, _exchange: str) -> bool:
        return False

    def allows_key(self, _access: Access, _exchange: str, _key: str) -> bool:
        return True


def asking(permissions: Asked) -> Rights:
    return Rights(UserName("anna"), False, permissions, ConnectionId(1))


class World:
    def __init__(self) -> None:
        self.shard = FakeShard()
        self.tasks = Tasks()
        self.definitions = FakeDefinitions()
        topology = VhostTopology(VhostName("/"))
        apply_changes(self.shard, changes_of(topology))  # type: ignore[arg-type]
        owner = Owner(topology, self.shard, self.definitions)  # type: ignore[arg-type]
        self.vhost = Vhost(owner, lambda: TOKEN)
        self.tasks.spawn(owner.run(), name="owner")


def play(scenario: Callable[[Vhost, FakeShard], Awaitable[None]]) -> None:
    async def run() -> None:
        world = World()
        await scenario(world.vhost, world.shard)
        await world.tasks.end()

    asyncio.run(run())


def queue(name: str, **flags: bool) -> DeclareQueue:
    return DeclareQueue(QueueName(name), ConnectionId(0), **flags)  # type: ignore[arg-type]


def exchange(name: str, **arguments: str) -> DeclareExchange:
    renamed = {key.replace("_", "-"): value for key, value in arguments.items()}
    return DeclareExchange(ExchangeName(name), "fanout", arguments=renamed)


def to_queue(source: str, name: str, key: str = "") -> Binding:
    return Binding(ExchangeName(source), DestinationKind.QUEUE, QueueName(name), RoutingKey(key))


def to_exchange(source: str, name: str) -> Binding:
    return Binding(ExchangeName(source), DestinationKind.EXCHANGE, ExchangeName(name))


def only(**names: str) -> NamesAllowed:
    """Allow only the named accesses to the named things, separated by spaces."""
    held = {access: frozenset(names.get(access, "").split()) for access in ("configure", "write", "read")}
    return NamesAllowed(**held)


def test_a_queue_belongs_to_the_connection_that_declared_it() -> None:
    async def scenario(vhost: Vhost, shard: FakeShard) -> None:
        await vhost.declare_queue(rights(5), queue("a", exclusive=True))

        with pytest.raises(LockedError):
            await vhost.purge_queue(rights(6), QueueName("a"))
        with pytest.raises(LockedError):
            await vhost.admit_consume(rights(6), QueueName("a"))
        assert await vhost.admit_consume(rights(5), QueueName("a")) == 1
        await vhost.connection_closed(ConnectionId(6))
        assert shard.queues == {1: "a"}
        await vhost.connection_closed(ConnectionId(5))
        assert shard.queues == {}

    play(scenario)


def test_a_stage_is_not_deleted_while_its_decided_batch_is_not_all_copied() -> None:
    """A write that failed after its decision deleted its stage, and left a part of its rows in the target."""

    async def scenario(vhost: Vhost, shard: FakeShard) -> None:
        await vhost.declare_queue(rights(), queue("target"))
        stage, _ = await vhost.stages.open(rights(), "nightly", "", "", "target")
        shard.decided[stage] = StageState(last_batch=7, is_copying=True)

        with pytest.raises(PreconditionFailedError, match="batch 7"):
            await vhost.stages.delete(rights(), "nightly")
        assert stage in shard.queues
        shard.decided[stage] = StageState(last_batch=7)
        await vhost.stages.delete(rights(), "nightly")
        assert stage not in shard.queues

    play(scenario)


def test_a_queue_without_a_name_gets_one_that_must_be_allowed() -> None:
    async def scenario(vhost: Vhost, shard: FakeShard) -> None:
        status = await vhost.declare_queue(rights(), queue(""))
        assert status.queue.name == f"amq.gen-{TOKEN}"

        with pytest.raises(AccessRefusedError):
            await vhost.declare_queue(rights(permissions=only(configure="mine")), queue(""))

    play(scenario)


def test_declaring_what_is_there_tells_its_counts() -> None:
    async def scenario(vhost: Vhost, shard: FakeShard) -> None:
        await vhost.declare_queue(rights(), queue("a"))
        shard.counts["a"] = QueueCounts(
            ready_count=1, unacked_count=2, ready_bytes=3, unacked_bytes=4, consumer_count=5
        )

        status = await vhost.declare_queue(rights(), queue("a", passive=True))

        assert (status.ready_count, status.unacked_count, status.ready_bytes) == (1, 2, 3)
        assert (status.unacked_bytes, status.consumer_count) == (4, 5)
        assert (await vhost.queue_status(rights(), QueueName("a"))).counts == QueueCounts(
            ready_count=1, unacked_count=2, ready_bytes=3, unacked_bytes=4, consumer_count=5
        )
        with pytest.raises(NotFoundError):
            await vhost.queue_status(rights(), QueueName("b"))

    play(scenario)


def test_deleting_and_purging_tell_how_many_messages_went() -> None:
    async def scenario(vhost: Vhost, shard: FakeShard) -> None:
        await vhost.declare_queue(rights(), queue("a"))
        shard.counts["a"] = QueueCounts(ready_count=7, unacked_count=2)

        assert await vhost.purge_queue(rights(), QueueName("a")) == 7
        assert await vhost.delete_queue(rights(), QueueName("a")) == 2

    play(scenario)


def test_each_verb_needs_its_permission() -> None:
    """Each is allowed with exactly these permissions, and refused when any one of them is missing."""
    verbs: list[tuple[dict[str, str], Callable[[Vhost, NamesAllowed], Awaitable[object]]]] = [
        ({"configure": "a"}, lambda v, p: v.declare_queue(rights(permissions=p), queue("a"))),
        ({"configure": "a"}, lambda v, p: v.delete_queue(rights(permissions=p), QueueName("a"))),
        ({"read": "a"}, lambda v, p: v.purge_queue(rights(permissions=p), QueueName("a"))),
        ({"read": "a"}, lambda v, p: v.admit_consume(rights(permissions=p), QueueName("a"))),
        ({"configure": "x"}, lambda v, p: v.declare_exchange(rights(permissions=p), exchange("x"))),
        ({"configure": "x"}, lambda v, p: v.delete_exchange(rights(permissions=p), ExchangeName("x"))),
        ({"write": "x"}, lambda v, p: v.admit_publish(rights(permissions=p), ExchangeName("x"))),
        ({"write": "amq.default"}, lambda v, p: v.admit_publish(rights(permissions=p), ExchangeName(""))),
        ({"write": "a", "read": "x"}, lambda v, p: v.bind(rights(permissions=p), to_queue("x", "a", "new"))),
        ({"write": "a", "read": "x"}, lambda v, p: v.unbind(rights(permissions=p), to_queue("x", "a", "old"))),
        (
            {"write": "x", "read": "amq.topic"},
            lambda v, p: v.bind(rights(permissions=p), to_exchange("amq.topic", "x")),
        ),
        (
            {"configure": "y", "read": "y", "write": "x"},
            lambda v, p: v.declare_exchange(rights(permissions=p), exchange("y", alternate_exchange="x")),
        ),
    ]

    async def scenario(needed: dict[str, str], verb: Callable[[Vhost, NamesAllowed], Awaitable[object]]) -> None:
        world = World()
        await world.vhost.declare_queue(rights(), queue("a"))
        await world.vhost.declare_exchange(rights(), exchange("x"))
        await world.vhost.bind(rights(), to_queue("x", "a", "old"))
        for missing in needed:
            lacking = {access: names for access, names in needed.items() if access != missing}
            with pytest.raises(AccessRefusedError, match=f"user 'anna' has no {missing} permission on"):
                await verb(world.vhost, only(**lacking))
        await verb(world.vhost, only(**needed))
        await world.tasks.end()

    for needed, verb in verbs:
        asyncio.run(scenario(needed, verb))


def test_streams_are_asked_about_as_the_exchanges_and_queues_they_are() -> None:
    """An HTTP server was asked about a resource `stream`, which RabbitMQ's protocol does not have."""

    async def scenario(vhost: Vhost, _: FakeShard) -> None:
        for command, parts in (
            (DeclareStream("one"), [("queue", "one")]),
            (DeclareStream("many", 2), [("exchange", "many"), ("queue", "many-0"), ("queue", "many-1")]),
        ):
            declaring, deleting = Asked(), Asked()
            await vhost.streams.declare(asking(declaring), command)
            await vhost.streams.delete(asking(deleting), command.name)
            assert list(dict.fromkeys(declaring.things)) == parts
            assert list(dict.fromkeys(deleting.things)) == parts

        missing = Asked()
        with pytest.raises(NotFoundError):
            await vhost.streams.delete(asking(missing), "gone")
        assert missing.things == [("queue", "gone")]
        trimming = Asked()
        with pytest.raises(NotFoundError):
            await vhost.streams.trim(asking(trimming), QueueName("gone"), 1)
        assert trimming.things == [("queue", "gone")]

    play(scenario)


def test_looking_needs_no_more_than_to_be_in_the_vhost() -> None:
    async def scenario(vhost: Vhost, shard: FakeShard) -> None:
        await vhost.declare_queue(rights(), queue("a"))
        await vhost.declare_exchange(rights(), exchange("x"))
        other = rights(permissions=only())

        await vhost.declare_queue(other, queue("a", passive=True))
        await vhost.declare_exchange(other, DeclareExchange(ExchangeName("x"), passive=True))
        assert len(await vhost.list_queues(other)) == 1
        for look in (
            lambda: vhost.list_queues(NOBODY),
            lambda: vhost.list_exchanges(NOBODY),
            lambda: vhost.list_bindings(NOBODY),
            lambda: vhost.queue_status(NOBODY, QueueName("a")),
            lambda: vhost.declare_queue(NOBODY, queue("a", passive=True)),
        ):
            with pytest.raises(AccessRefusedError, match="access to vhost '/' refused for user 'anna'"):
                await look()

    play(scenario)


def test_the_administrators_tag_opens_no_queue() -> None:
    async def scenario(vhost: Vhost, shard: FakeShard) -> None:
        with pytest.raises(AccessRefusedError):
            await vhost.declare_queue(rights(permissions=None, admin=True), queue("a"))

    play(scenario)


def test_queues_are_listed_in_pages_by_name() -> None:
    async def scenario(vhost: Vhost, shard: FakeShard) -> None:
        for name in ("b", "d", "a", "c"):
            await vhost.declare_queue(rights(), queue(name))
        shard.counts["b"] = QueueCounts(ready_count=9)

        first = await vhost.list_queues(rights(), limit=3)
        rest = await vhost.list_queues(rights(), after=first[-1].queue.name, limit=3)

        assert [status.queue.name for status in first] == ["a", "b", "c"]
        assert first[1].ready_count == 9
        assert [status.queue.name for status in rest] == ["d"]

    play(scenario)


def test_a_page_is_bounded_whatever_was_asked_for() -> None:
    async def scenario(vhost: Vhost, shard: FakeShard) -> None:
        names = [f"q{index:05}" for index in range(PAGE_SIZE_MAX + 1)]
        await asyncio.gather(*(vhost.declare_queue(rights(), queue(name)) for name in names))

        assert len(await vhost.list_queues(rights(), limit=10**9)) == PAGE_SIZE_MAX

    play(scenario)


def test_exchanges_are_listed_with_the_default_one_first() -> None:
    async def scenario(vhost: Vhost, shard: FakeShard) -> None:
        names = [one.name for one in await vhost.list_exchanges(rights())]

        assert names == ["", "amq.direct", "amq.fanout", "amq.headers", "amq.match", "amq.topic"]
        assert [one.name for one in await vhost.list_exchanges(rights(), after="amq.match")] == ["amq.topic"]

    play(scenario)


def test_bindings_are_listed_by_either_end() -> None:
    async def scenario(vhost: Vhost, shard: FakeShard) -> None:
        await vhost.declare_queue(rights(), queue("a"))
        await vhost.declare_exchange(rights(), exchange("x"))
        one, two, three = to_queue("x", "a"), to_queue("amq.topic", "a"), to_exchange("amq.topic", "x")
        for binding in (one, two, three):
            await vhost.bind(rights(), binding)

        assert len(await vhost.list_bindings(rights())) == 3
        assert await vhost.list_bindings(rights(), source=ExchangeName("x")) == [one]
        assert await vhost.list_bindings(rights(), destination="x") == [three]
        assert await vhost.list_bindings(rights(), source=ExchangeName("amq.topic"), destination="a") == [two]

    play(scenario)


def test_publishing_is_admitted_only_to_what_is_there_and_not_internal() -> None:
    async def scenario(vhost: Vhost, shard: FakeShard) -> None:
        await vhost.declare_exchange(rights(), DeclareExchange(ExchangeName("inner"), internal=True))

        await vhost.admit_publish(rights(), ExchangeName(""))
        with pytest.raises(AccessRefusedError, match="internal"):
            await vhost.admit_publish(rights(), ExchangeName("inner"))
        with pytest.raises(NotFoundError):
            await vhost.admit_publish(rights(), ExchangeName("nowhere"))

    play(scenario)


def test_the_engine_learns_names_levels_alternates_and_routes() -> None:
    async def scenario(vhost: Vhost, shard: FakeShard) -> None:
        command = DeclareQueue(QueueName("a"), ConnectionId(0), auto_delete=True, arguments={"x-durability": "os"})
        await vhost.declare_queue(rights(), command)
        await vhost.declare_exchange(rights(), exchange("x", alternate_exchange="amq.topic"))
        await vhost.bind(rights(), to_queue("x", "a", "ignored"))

        assert shard.levels == {"a": "os"}
        assert shard.auto_delete == {"a"}
        assert shard.exchanges["x"] == ("fanout", "amq.topic")
        assert shard.route("x", "anything") == ["a"]
        await vhost.queue_unused(QueueName("a"), QueueId(1))
        assert shard.route("x", "anything") == []

    play(scenario)
