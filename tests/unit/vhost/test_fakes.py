"""The fakes follow the rules of their ports."""

import asyncio

import pytest

from penstock.model.errors import StorageError
from penstock.model.field_table import encode_table
from penstock.model.names import VhostName
from penstock.model.records import Access
from penstock.native import NewRoute, QueueCounts, VhostCounts
from support.vhost_fakes import FakeDefinitions, FakeShard, FakeShardError, FakeStorage, NamesAllowed, rights


def test_the_shard_refuses_what_the_engine_could_not_do() -> None:
    shard = FakeShard()
    shard.put_queue(1, "a", auto_delete=False, level=None)
    shard.put_exchange("x", "direct", None)
    shard.add_route("x", "k", None, False, "a")

    for impossible in (
        lambda: shard.put_queue(1, "b", auto_delete=False, level=None),
        lambda: shard.put_queue(2, "a", auto_delete=False, level=None),
        lambda: shard.put_exchange("x", "direct", None),
        lambda: shard.put_exchange("", "direct", None),
        lambda: shard.add_route("x", "k", None, False, "a"),
        lambda: shard.add_route("x", "k", None, True, "nowhere"),
        lambda: shard.remove_route(NewRoute(exchange="x", key="other", destination="a")),
        lambda: shard.delete_queue(1),
        lambda: shard.delete_queue(2),
        lambda: shard.delete_exchange("x"),
        lambda: shard.queue_counts([2]),
    ):
        with pytest.raises(FakeShardError):
            impossible()


def test_the_shard_routes_by_what_it_was_told() -> None:
    shard = FakeShard()
    for queue_id, name in enumerate(("a", "b", "c"), 1):
        shard.put_queue(queue_id, name, auto_delete=False, level=None)
    shard.put_exchange("direct", "direct", "headers")
    shard.put_exchange("headers", "headers", None)
    shard.put_exchange("topic", "topic", None)
    shard.add_route("direct", "k", None, False, "a")
    shard.add_route("headers", "", encode_table({"n": 1}), False, "b")
    shard.add_route("topic", "k.#", None, True, "direct")
    shard.add_route("topic", "k.*", None, False, "c")

    assert shard.route("", "a") == ["a"]
    assert shard.route("direct", "k") == ["a"]
    assert shard.route("direct", "other", {"n": 1}) == ["b"]
    assert shard.route("topic", "k") == ["a"]
    assert shard.route("topic", "k.x") == ["c"]


def test_counts_are_dropped_by_purge_and_delete() -> None:
    shard = FakeShard()
    shard.put_queue(1, "a", auto_delete=True, level=None)
    shard.counts["a"] = QueueCounts(ready_count=3, unacked_count=2, ready_bytes=30, unacked_bytes=20, consumer_count=1)

    assert shard.totals() == VhostCounts(ready_count=3, unacked_count=2)
    assert shard.purge_queue(1) == 3
    assert shard.queue_counts([1]) == [QueueCounts(unacked_count=2, unacked_bytes=20, consumer_count=1)]
    assert shard.delete_queue(1) == 2


def test_an_append_can_be_held_and_can_fail() -> None:
    async def scenario() -> None:
        definitions = FakeDefinitions()
        definitions.hold()
        held = asyncio.ensure_future(definitions.append([]))
        await definitions.entered.wait()
        assert not held.done()
        definitions.go()
        await held
        definitions.fails = True
        with pytest.raises(StorageError):
            await definitions.append([])
        assert definitions.batches == [[]]

    asyncio.run(scenario())


def test_a_storage_finds_again_what_was_written() -> None:
    async def scenario() -> None:
        storage = FakeStorage()
        name = VhostName("blue")
        made = await storage.create(name)
        await made.definitions.append([])
        assert await storage.names() == [name]
        assert (await storage.open(name)).definitions is made.definitions
        storage.shards[name].close(delete=False)
        await storage.begin_deletion(name)
        await storage.delete(name)
        assert await storage.names() == []

    asyncio.run(scenario())


def test_names_are_allowed_by_access() -> None:
    permissions = NamesAllowed(write=frozenset({"a"}), read=frozenset())

    assert permissions.allows(Access.CONFIGURE, "anything")
    assert permissions.allows(Access.WRITE, "a")
    assert not permissions.allows(Access.WRITE, "b")
    assert not permissions.allows(Access.READ, "a")
    assert rights(permissions=permissions).permissions is permissions
