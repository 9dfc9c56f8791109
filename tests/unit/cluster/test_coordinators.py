"""Each coordinator keeps the promises of the port: one suite for all of them.

etcd is the real one, where it is installed; the API server of Kubernetes is a small one of our own. Before both there
is a proxy that loses and delays requests and replies.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, cast

import pytest

from penstock.cluster import etcd, kubernetes
from penstock.cluster.api import JsonApi
from penstock.cluster.coordinator import Coordinator, Refused, UnreachableError, Versioned
from penstock.cluster.directory import DirectoryCoordinator
from penstock.cluster.etcd import EtcdCoordinator
from penstock.cluster.kubernetes import KubernetesCoordinator
from penstock.cluster.opening import open_coordinator
from penstock.cluster.record import Recovery
from penstock.model.errors import InvalidArgumentError, StorageError
from support.coordinators import HAS_ETCD, etcd_server, kubernetes_server
from support.remotes import REPLICAS, Ends, Remote, changed, record, through_proxy

P = ParamSpec("P")
NUMBERS: Final = count()
Opening = Callable[[], AbstractAsyncContextManager[Coordinator]]
REMOTE = ["kubernetes", *(["etcd"] if HAS_ETCD else [])]


def scenario(test: Callable[Concatenate[Coordinator, P], Awaitable[None]]) -> Callable[Concatenate[Opening, P], None]:
    """Run a test in a loop of its own, for at most half a minute."""

    @functools.wraps(test)
    def run(coordinator: Opening, *args: P.args, **kwargs: P.kwargs) -> None:
        async def opened() -> None:
            async with coordinator() as made:
                await test(made, *args, **kwargs)

        asyncio.run(asyncio.wait_for(opened(), 60))

    return cast(Callable[Concatenate[Opening, P], None], run)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Yield the addresses of the coordinators' servers."""
    with kubernetes_server() as kubernetes:
        if HAS_ETCD:
            with etcd_server(tmp_path_factory.mktemp("etcd")) as etcd:
                yield {"kubernetes": kubernetes, "etcd": etcd}
        else:
            yield {"kubernetes": kubernetes}


def remote_of(kind: str, servers: dict[str, str]) -> Remote:
    return Remote(servers[kind], kind, f"test-{next(NUMBERS)}")


@pytest.fixture(params=["directory", *REMOTE])
def coordinator(request: pytest.FixtureRequest, tmp_path: Path, servers: dict[str, str]) -> Opening:
    @asynccontextmanager
    async def opening() -> AsyncIterator[Coordinator]:
        if request.param == "directory":
            made: Coordinator = DirectoryCoordinator(tmp_path / "coordinator")
        else:
            remote = remote_of(request.param, servers)
            made = remote.make(remote.server)
        try:
            yield made
        finally:
            await made.close()

    return opening


@pytest.fixture(params=REMOTE)
def remote(request: pytest.FixtureRequest, servers: dict[str, str]) -> Remote:
    return remote_of(request.param, servers)


async def all_of(watch: AsyncIterator[Versioned]) -> list[Versioned]:
    return [found async for found in watch]


@scenario
async def test_a_record_is_created_once(coordinator: Coordinator) -> None:
    assert await coordinator.read("orders.0") is None
    version = await changed(coordinator, None, record())

    assert await coordinator.read("orders.0") == Versioned(record(), version)
    assert await coordinator.change("orders.0", None, record(boot=8)) is Refused.CONFLICT
    assert await coordinator.read("orders.1") is None


@scenario
async def test_numbers_of_64_bits_are_kept(coordinator: Coordinator) -> None:
    largest = record(2**64 - 1, boot=2**64 - 2)
    version = await changed(coordinator, None, largest)

    assert await coordinator.read("orders.0") == Versioned(largest, version)


@scenario
async def test_the_recoveries_of_a_shard_are_kept(coordinator: Coordinator) -> None:
    recovery = Recovery(
        epoch=2**64 - 1, broker="mq-1", replica=REPLICAS[1], end=2**63, by="root", at_ms=2**53 - 1, lost=(REPLICAS[0],)
    )
    recovered = record().model_copy(update={"recoveries": (recovery,)})
    version = await changed(coordinator, None, recovered)

    assert await coordinator.read("orders.0") == Versioned(recovered, version)


@scenario
async def test_a_change_needs_the_newest_version(coordinator: Coordinator) -> None:
    first = await changed(coordinator, None, record())
    second = await changed(coordinator, first, record(2))

    assert await coordinator.change("orders.0", first, record(2, boot=8)) is Refused.CONFLICT
    assert await coordinator.read("orders.0") == Versioned(record(2), second)


@scenario
async def test_a_version_never_comes_back(coordinator: Coordinator) -> None:
    first = await changed(coordinator, None, record())
    second = await changed(coordinator, first, record(in_sync=2))
    third = await changed(coordinator, second, record())

    assert len({first, second, third}) == 3
    # A request that was late, from when the record was the same.
    assert await coordinator.change("orders.0", first, record(2)) is Refused.CONFLICT


@scenario
async def test_one_of_many_changes_at_once_is_made(coordinator: Coordinator) -> None:
    base = await changed(coordinator, None, record())
    answers = await asyncio.gather(*(coordinator.change("orders.0", base, record(2, boot=n)) for n in range(20)))

    made = [boot for boot, answer in enumerate(answers) if not isinstance(answer, Refused)]
    found = await coordinator.read("orders.0")
    assert found is not None
    assert made == [found.record.leader.boot]
    assert found.version == answers[made[0]]


@scenario
async def test_a_change_whose_answer_is_lost_is_found_by_a_read(coordinator: Coordinator) -> None:
    base = await changed(coordinator, None, record())
    task = asyncio.ensure_future(coordinator.change("orders.0", base, record(2)))
    await asyncio.sleep(0)
    task.cancel()

    async for found in coordinator.watch("orders.0"):
        if found.version != base:
            assert found.record == record(2)
            break
        # It may have ended before the request was sent.
        await coordinator.change("orders.0", base, record(2))


@scenario
async def test_a_watch_shows_the_record_and_its_changes(coordinator: Coordinator) -> None:
    version = await changed(coordinator, None, record())
    watch = aiter(coordinator.watch("orders.0"))

    assert await anext(watch) == Versioned(record(), version)
    version = await changed(coordinator, version, record(2))
    assert await anext(watch) == Versioned(record(2), version)


@scenario
async def test_a_change_is_seen_by_the_watch_of_its_shard_alone(coordinator: Coordinator) -> None:
    version, other = await changed(coordinator, None, record()), await changed(coordinator, None, record(), "orders.1")
    watch, of_other = coordinator.watch("orders.0"), coordinator.watch("orders.1")
    assert [(await anext(each)).version for each in (watch, of_other)] == [version, other]

    waiting = asyncio.ensure_future(anext(of_other))
    for epoch in (2, 3):
        version = await changed(coordinator, version, record(epoch))
        assert await anext(watch) == Versioned(record(epoch), version)
    assert not waiting.done()
    other = await changed(coordinator, other, record(4), "orders.1")
    assert await waiting == Versioned(record(4), other)


@scenario
async def test_a_watch_shows_a_shard_that_is_made_later(coordinator: Coordinator) -> None:
    await changed(coordinator, None, record())
    async with aclosing(coordinator.watch("orders.0")) as watch:
        await anext(watch)
        waiting = asyncio.ensure_future(anext(coordinator.watch("orders.1")))
        version = await changed(coordinator, None, record(2), "orders.1")

        assert await waiting == Versioned(record(2), version)


@scenario
async def test_no_task_is_left_of_watches_that_are_closed_or_cancelled(coordinator: Coordinator) -> None:
    await changed(coordinator, None, record())
    before = asyncio.all_tasks()
    async with aclosing(coordinator.watch("orders.0")) as watch:
        await anext(watch)
        waiting = asyncio.ensure_future(anext(coordinator.watch("orders.1")))
        await asyncio.sleep(0)
        waiting.cancel()
    async with asyncio.timeout(30):
        while asyncio.all_tasks() != before:  # noqa: ASYNC110 (a task ends some steps after it is cancelled)
            await asyncio.sleep(0.01)

    yields = asyncio.ensure_future(all_of(coordinator.watch("orders.1")))
    await asyncio.sleep(0)
    await coordinator.close()
    assert await yields == []
    assert asyncio.all_tasks() <= before


@scenario
async def test_each_beat_differs_from_the_one_before(coordinator: Coordinator) -> None:
    assert await coordinator.beats() == {}
    await coordinator.beat("mq-0", 7)
    await coordinator.beat("mq-1", 7)
    before = await coordinator.beats()
    await coordinator.beat("mq-0", 7)
    after = await coordinator.beats()

    assert sorted(before) == sorted(after) == ["mq-0", "mq-1"]
    assert before["mq-0"] != after["mq-0"]
    assert before["mq-1"] == after["mq-1"]


@through_proxy
async def test_a_change_whose_reply_is_lost_is_known_to_be_made(ends: Ends) -> None:
    base = await changed(ends.behind, None, record())
    ends.proxy.loses_replies = True

    version = await changed(ends.behind, base, record(2))

    assert await ends.direct.read("orders.0") == Versioned(record(2), version)


@pytest.mark.slow
@through_proxy
async def test_a_change_that_is_late_is_unknown_until_it_is_made(ends: Ends) -> None:
    base = await changed(ends.direct, None, record())
    ends.proxy.holds = True

    assert await ends.impatient.change("orders.0", base, record(2)) is Refused.UNKNOWN
    assert await ends.direct.read("orders.0") == Versioned(record(), base)
    await ends.proxy.release()

    found = await ends.direct.read("orders.0")
    assert found is not None
    assert (found.record, found.version != base) == (record(2), True)


@pytest.mark.slow
@through_proxy
async def test_a_change_that_is_late_never_replaces_a_later_one(ends: Ends) -> None:
    base = await changed(ends.direct, None, record())
    ends.proxy.holds = True
    assert await ends.impatient.change("orders.0", base, record(2)) is Refused.UNKNOWN
    version = await changed(ends.direct, base, record(2, boot=8))

    await ends.proxy.release()

    assert await ends.direct.read("orders.0") == Versioned(record(2, boot=8), version)


@pytest.mark.slow
@through_proxy
async def test_a_watch_that_says_nothing_shows_changes_all_the_same(ends: Ends) -> None:
    version = await changed(ends.direct, None, record())
    ends.proxy.is_silent = True
    watch = aiter(ends.behind.watch("orders.0"))
    assert await anext(watch) == Versioned(record(), version)

    version = await changed(ends.direct, version, record(2))

    assert await anext(watch) == Versioned(record(2), version)


@scenario
async def test_a_watch_goes_on_after_changes_that_are_no_longer_kept(coordinator: Coordinator) -> None:
    version = await changed(coordinator, None, record())
    watch = aiter(coordinator.watch("orders.0"))
    assert (await anext(watch)).version == version

    for number in range(30):
        await coordinator.beat(f"mq-{number}", 1)
    version = await changed(coordinator, version, record(2))

    assert (await anext(watch)).version == version


@pytest.mark.slow
@through_proxy
async def test_watches_of_many_shards_are_one_list_and_one_watch(ends: Ends) -> None:
    shards = [f"orders.{number}" for number in range(150)]
    versions = {shard: await changed(ends.direct, None, record(), shard) for shard in shards}
    watches = {shard: ends.seldom.watch(shard) for shard in shards}

    assert {shard: (await anext(watch)).version for shard, watch in watches.items()} == versions
    for shard, watch in watches.items():
        versions[shard] = await changed(ends.direct, versions[shard], record(2), shard)
        assert await anext(watch) == Versioned(record(2), versions[shard])

    assert len(ends.proxy.asked) == 2


@through_proxy
async def test_a_list_comes_in_pages(ends: Ends) -> None:
    shards = [f"orders.{number}" for number in range(10)]
    versions = {shard: await changed(ends.direct, None, record(), shard) for shard in shards}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(etcd, "PAGE", 3)
        patch.setattr(kubernetes, "PAGE", 3)
        watches = {shard: ends.seldom.watch(shard) for shard in shards}
        found = {shard: (await anext(watch)).version for shard, watch in watches.items()}

    assert found == versions
    assert len(ends.proxy.asked) in (4, 5)  # the watch may not have begun


@through_proxy
async def test_a_watch_whose_connection_ends_goes_on(ends: Ends) -> None:
    version = await changed(ends.direct, None, record())
    watch = ends.seldom.watch("orders.0")
    assert (await anext(watch)).version == version
    version = await changed(ends.direct, version, record(2))
    assert (await anext(watch)).version == version

    for epoch in (3, 4):
        ends.proxy.cut_watches()
        version = await changed(ends.direct, version, record(epoch))
        while (found := await anext(watch)).version != version:
            pass
        assert found.record == record(epoch)


@through_proxy
async def test_a_watch_after_a_revision_that_is_compacted_begins_anew(ends: Ends) -> None:
    version = await changed(ends.direct, None, record())
    ends.proxy.may_watch.clear()
    watch = ends.seldom.watch("orders.0")
    assert (await anext(watch)).version == version

    for epoch in range(2, 20):
        version = await changed(ends.direct, version, record(epoch))
    await ends.remote.compact()
    ends.proxy.may_watch.set()

    assert await anext(watch) == Versioned(record(19), version)


@through_proxy
async def test_a_record_that_is_corrupt_ends_the_watch_of_its_shard_alone(ends: Ends) -> None:
    version = await changed(ends.direct, None, record())
    await changed(ends.direct, None, record(), "orders.1")
    watch, corrupt = ends.seldom.watch("orders.0"), ends.seldom.watch("orders.1")
    await anext(watch)
    await anext(corrupt)

    await ends.remote.corrupt("orders.1")

    with pytest.raises(StorageError, match="is not a shard's record"):
        await anext(corrupt)
    with pytest.raises(StorageError, match="is not a shard's record"):
        await anext(ends.direct.watch("orders.1"))
    version = await changed(ends.direct, version, record(2))
    assert await anext(watch) == Versioned(record(2), version)


@through_proxy
async def test_objects_and_keys_of_others_hide_no_shard(ends: Ends) -> None:
    version = await changed(ends.direct, None, record())
    await ends.remote.add_foreign()

    assert await anext(ends.direct.watch("orders.0")) == Versioned(record(), version)


def test_a_coordinator_that_is_away_answers_nothing_and_changes_nothing() -> None:
    async def run() -> None:
        for coordinator in (
            EtcdCoordinator(["http://127.0.0.1:1"]),
            KubernetesCoordinator(JsonApi(["http://127.0.0.1:1"]), "default", "orders"),
        ):
            with pytest.raises(UnreachableError, match="cannot be reached"):
                await coordinator.read("orders.0")
            with pytest.raises(UnreachableError):
                await coordinator.beat("mq-0", 7)
            assert await coordinator.change("orders.0", None, record()) is Refused.UNKNOWN
            await coordinator.close()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_server_that_is_down_is_passed_over(servers: dict[str, str]) -> None:
    async def run() -> None:
        api = JsonApi(["http://127.0.0.1:1", servers["kubernetes"]])
        try:
            reply = await api.ask("GET", "/apis/penstock.dev/v1alpha1/namespaces/default/shards/none")
            assert reply.status == 404
        finally:
            await api.close()

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "multiple",
        "file:",
        "etcd:",
        "etcd:host:2379",
        "etcd:http://one:1/a,http://two:1",
        "etcd:http:///x",
        "kubernetes:",
    ],
)
def test_an_unknown_coordinator_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="is unknown; use 'single'"):
        open_coordinator(text, tmp_path)


def test_one_line_names_a_coordinator(tmp_path: Path) -> None:
    assert isinstance(open_coordinator("single", tmp_path), DirectoryCoordinator)
    assert isinstance(open_coordinator(f"file:{tmp_path}/shared", tmp_path), DirectoryCoordinator)
    assert (tmp_path / "coordinator").is_dir()
    assert (tmp_path / "shared").is_dir()
    made = open_coordinator("etcd:http://a:2379,https://b:2379/mq", tmp_path)
    assert isinstance(made, EtcdCoordinator)
    with pytest.raises(StorageError, match="run the broker in a pod"):
        open_coordinator("kubernetes:orders", tmp_path)
