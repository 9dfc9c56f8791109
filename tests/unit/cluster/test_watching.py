"""All watchers of a process share one list and one watch, which begins anew whatever ends it."""

import asyncio
import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing

import pytest

from penstock.cluster.coordinator import UnreachableError, Version, Versioned
from penstock.cluster.record import Leader, ShardRecord
from penstock.cluster.watching import Listing, Pace, SharedWatch
from penstock.model.errors import StorageError, Thing

REPLICA = f"{1:032x}"
RECORD = ShardRecord(
    epoch=1,
    leader=Leader(broker="mq-0", replica=REPLICA, boot=7),
    in_sync=(REPLICA,),
    replicas={REPLICA: "mq-0"},
    min_in_sync=1,
)
SELDOM = Pace(3600.0)
AWAY = UnreachableError(Thing("coordinator", "made up"), "cannot be reached")
Step = Mapping[str, str | None] | Exception | None
Watch = AsyncGenerator[Versioned, None]


class MadeUpSource:
    """Records as their versions. Its changes are what a test puts, an error, or None for their end."""

    def __init__(self) -> None:
        self.records: dict[str, str] = {}
        self.is_away = False
        self.list_count = 0
        self.followed: list[str] = []
        self.is_following = False
        self._steps: asyncio.Queue[Step] = asyncio.Queue(100)

    def put(self, step: Step) -> None:
        self._steps.put_nowait(step)

    async def listed(self) -> Listing[str]:
        self.list_count += 1
        assert not self.is_following, "an event from before this list could come after it"
        await asyncio.sleep(0)
        if self.is_away:
            raise AWAY
        return Listing(dict(self.records), str(self.list_count))

    async def changes(self, revision: str, _seconds: float) -> AsyncGenerator[Mapping[str, str | None], None]:
        self.followed.append(revision)
        self.is_following = True
        try:
            while (step := await self._steps.get()) is not None:
                if isinstance(step, Exception):
                    raise step
                yield step
        finally:
            self.is_following = False

    def parse(self, shard: str, stored: str) -> Versioned:
        if stored == "corrupt":
            raise StorageError(Thing("record", shard), "is corrupt", "restore a copy")
        return Versioned(RECORD, Version(stored))


def scenario(test: Callable[[MadeUpSource], Awaitable[None]]) -> Callable[[], None]:
    """Run a test in a loop of its own. No task is left at its end."""

    @functools.wraps(test)
    def run() -> None:
        async def checked() -> None:
            before = asyncio.all_tasks()
            await test(MadeUpSource())
            await settled()
            assert asyncio.all_tasks() == before

        asyncio.run(asyncio.wait_for(checked(), 60))

    del run.__dict__["__wrapped__"]  # pytest would look for a fixture
    return run


async def settled() -> None:
    """Let all tasks take their steps."""
    for _ in range(20):
        await asyncio.sleep(0)


async def version(watch: Watch) -> str:
    return str((await anext(watch)).version)


@scenario
async def test_a_change_is_seen_by_the_watchers_of_its_shard_alone(source: MadeUpSource) -> None:
    source.records = {"a": "a1", "b": "b1"}
    shared = SharedWatch(source, SELDOM)
    one, two, other = shared.watch("a"), shared.watch("a"), shared.watch("b")
    assert [await version(each) for each in (one, two, other)] == ["a1", "a1", "b1"]

    waiting = asyncio.ensure_future(version(other))
    source.put({"a": "a2"})
    assert [await version(one), await version(two)] == ["a2", "a2"]
    await settled()
    assert not waiting.done()
    source.put({"b": "b2"})
    assert await waiting == "b2"
    assert (source.list_count, source.followed) == (1, ["1"])
    await shared.close()


@scenario
async def test_many_watchers_share_one_list_and_one_watch(source: MadeUpSource) -> None:
    source.records = {f"s{number}": "1" for number in range(200)}
    shared = SharedWatch(source, SELDOM)
    watches = [shared.watch(shard) for shard in source.records]

    assert {await version(each) for each in watches} == {"1"}
    await settled()

    assert (source.list_count, source.followed) == (1, ["1"])
    await shared.close()


@scenario
async def test_a_watch_that_is_silent_hides_a_change_until_the_next_list(source: MadeUpSource) -> None:
    source.records = {"a": "1"}
    shared = SharedWatch(source, Pace(0.01))
    watch = shared.watch("a")
    assert await version(watch) == "1"

    source.records = {"a": "2"}

    assert await version(watch) == "2"
    await shared.close()


@pytest.mark.parametrize("end", [None, AWAY])
def test_a_watch_that_ends_begins_anew_with_a_list(end: Exception | None) -> None:
    @scenario
    async def run(source: MadeUpSource) -> None:
        source.records = {"a": "1"}
        shared = SharedWatch(source, SELDOM)
        watch = shared.watch("a")
        assert await version(watch) == "1"

        source.records = {"a": "2"}
        source.put(end)
        assert await version(watch) == "2"
        source.put({"a": "3"})
        assert await version(watch) == "3"
        assert source.followed == ["1", "2"]
        await shared.close()

    run()


@scenario
async def test_watchers_wait_while_the_coordinator_does_not_answer(source: MadeUpSource) -> None:
    source.records, source.is_away = {"a": "1"}, True
    shared = SharedWatch(source, Pace(0.01))
    waiting = asyncio.ensure_future(version(shared.watch("a")))
    while source.list_count < 3:  # noqa: ASYNC110 (a source says nothing of its lists)
        await asyncio.sleep(0.01)
    assert not waiting.done()

    source.is_away = False

    assert await waiting == "1"
    await shared.close()


@scenario
async def test_a_coordinator_that_went_back_is_shown_as_it_is(source: MadeUpSource) -> None:
    source.records = {"a": "1"}
    shared = SharedWatch(source, SELDOM)
    watch = shared.watch("a")
    assert await version(watch) == "1"
    source.put({"a": "2"})
    assert await version(watch) == "2"

    source.put(None)  # it was restored from a copy

    assert await version(watch) == "1"
    await shared.close()


@scenario
async def test_a_corrupt_record_ends_the_watch_of_its_shard_alone(source: MadeUpSource) -> None:
    source.records = {"a": "1", "b": "corrupt"}
    shared = SharedWatch(source, SELDOM)
    watch, corrupt = shared.watch("a"), shared.watch("b")
    assert await version(watch) == "1"

    with pytest.raises(StorageError, match="is corrupt"):
        await anext(corrupt)
    source.put({"a": "2", "b": "1"})
    assert await version(watch) == "2"
    assert await version(shared.watch("b")) == "1"
    await shared.close()


@scenario
async def test_a_shard_that_is_made_later_or_anew_is_yielded(source: MadeUpSource) -> None:
    shared = SharedWatch(source, SELDOM)
    waiting = asyncio.ensure_future(anext(watch := shared.watch("a")))
    await settled()
    assert not waiting.done()

    source.put({"a": "1"})
    assert (await waiting).version == "1"
    source.put({"a": None})
    source.put({"a": "2"})
    assert await version(watch) == "2"
    await shared.close()


@scenario
async def test_the_last_watcher_that_leaves_ends_the_watch(source: MadeUpSource) -> None:
    source.records = {"a": "1", "b": "1"}
    shared = SharedWatch(source, SELDOM)
    async with aclosing(shared.watch("a")) as watch:
        assert await version(watch) == "1"
        waiting = asyncio.ensure_future(version(shared.watch("missing")))
        await settled()
    await settled()
    assert source.is_following, "one is left"
    waiting.cancel()
    await settled()
    assert not source.is_following

    source.records = {"a": "2"}
    async with aclosing(shared.watch("a")) as watch:
        assert await version(watch) == "2", "what was known before is old"
    await settled()
    assert source.list_count == 2


@scenario
async def test_a_close_ends_all_watches(source: MadeUpSource) -> None:
    source.records = {"a": "1"}
    shared = SharedWatch(source, SELDOM)
    watch, waiting = shared.watch("a"), asyncio.ensure_future(anext(shared.watch("b"), None))
    assert await version(watch) == "1"

    await shared.close()

    assert await waiting is None
    assert [each async for each in watch] == []
    assert [each async for each in shared.watch("a")] == []


@scenario
async def test_a_bug_ends_the_watches_that_there_are_and_no_later_ones(source: MadeUpSource) -> None:
    source.records = {"a": "1"}
    shared = SharedWatch(source, SELDOM)
    watch = shared.watch("a")
    assert await version(watch) == "1"

    source.put(ZeroDivisionError("made up"))

    with pytest.raises(StorageError, match="failed: made up"):
        await anext(watch)
    assert await version(shared.watch("a")) == "1"
    await shared.close()


def test_lists_take_a_small_share_of_the_time() -> None:
    pace = Pace(5.0)

    assert pace.pause_s(0.01) == 5.0
    assert pace.pause_s(1.0) == 20.0


def test_waits_after_failures_grow_up_to_the_pause() -> None:
    pace = Pace(5.0)

    assert [pace.retry_s(failures, 0.0) for failures in (1, 2, 3)] == [0.1, 0.2, 0.4]
    assert pace.retry_s(10_000, 0.0) == 5.0
    assert [pace.retry_s(failures, 0.5) for failures in (1, 2, 9)] == [0.5, 1.0, 10.0]
