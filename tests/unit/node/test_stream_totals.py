"""Numbers of streams and groups in a scrape."""

import asyncio
from types import SimpleNamespace

import pytest

from penstock.kit.settings import GROUP_SERIES_MAX, PARTITION_SERIES_MAX
from penstock.metadata.commands import DeclareStream
from penstock.model.names import VhostName
from penstock.native import StreamState
from penstock.node.state import BrokerState
from penstock.services.ports import Recovery
from penstock.vhost.vhosts import Vhosts
from support.vhost_fakes import FakeShard, FakeStorage, Tasks, rights

CLOCK = SimpleNamespace(monotonic=lambda: 0.0, now_ms=lambda: 0)


def test_a_scrape_sees_a_bounded_number_of_partitions_and_groups_and_counts_the_rest() -> None:
    async def run() -> None:
        tasks, storage = Tasks(), FakeStorage()
        vhosts = Vhosts(storage, tasks.spawn, lambda: "0123456789abcdefghijkl")
        state = BrokerState("1.0", "node-1", "/data", CLOCK)
        state.opened(SimpleNamespace(metrics=dict), vhosts, Recovery())
        await vhosts.make(VhostName("a"))
        await vhosts.make(VhostName("b"))
        for name, count in (("a", PARTITION_SERIES_MAX - 1), ("b", 5)):
            await vhosts.get(VhostName(name)).streams.declare(rights(), DeclareStream("s", count))
        for stream in storage.shards[VhostName("a")].streams.values():
            stream.groups = {f"g{number}": None for number in range(10)}
        storage.shards[VhostName("b")].streams[1].groups = {"late": 0}
        storage.shards[VhostName("b")].streams[1].times = [1, 2, 3]

        totals = state.stream_totals()

        assert len(totals.partitions) == PARTITION_SERIES_MAX
        assert totals.partitions_left_out == 4
        assert len(totals.groups) == GROUP_SERIES_MAX
        assert totals.groups_left_out == 10 * (PARTITION_SERIES_MAX - 1) + 1 - GROUP_SERIES_MAX
        last = totals.partitions[-1]
        assert (last.vhost, last.partition, last.first_offset, last.next_offset) == ("b", "s-0", 1, 4)
        await tasks.end()

    asyncio.run(run())


def test_figures_are_told_without_reading_from_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape read two records of each stream on the event loop.

    There a hanging disk blocked it, and all virtual hosts with it.
    """

    async def run() -> None:
        tasks, storage = Tasks(), FakeStorage()
        vhosts = Vhosts(storage, tasks.spawn, lambda: "0123456789abcdefghijkl")
        await vhosts.make(VhostName("a"))
        streams = vhosts.get(VhostName("a")).streams
        await streams.declare(rights(), DeclareStream("s"))
        monkeypatch.delattr(FakeShard, "stream_states")

        assert [status.state for status in streams.states_now(10)[0]] == [StreamState(first=1, next=1)]
        await tasks.end()

    asyncio.run(run())


def test_a_stream_that_is_being_declared_is_seen_later() -> None:
    async def run() -> None:
        tasks, storage = Tasks(), FakeStorage()
        vhosts = Vhosts(storage, tasks.spawn, lambda: "0123456789abcdefghijkl")
        await vhosts.make(VhostName("a"))
        streams = vhosts.get(VhostName("a")).streams
        await streams.declare(rights(), DeclareStream("old"))
        storage.definitions[VhostName("a")].hold()
        declaring = asyncio.ensure_future(streams.declare(rights(), DeclareStream("new")))
        await storage.definitions[VhostName("a")].entered.wait()

        assert [status.name for status in streams.states_now(10)[0]] == ["old"]

        storage.definitions[VhostName("a")].go()
        await declaring
        assert [status.name for status in streams.states_now(10)[0]] == ["new", "old"]
        await tasks.end()

    asyncio.run(run())
