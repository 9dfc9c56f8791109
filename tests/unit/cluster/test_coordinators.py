"""Each coordinator keeps the promises of the port: one suite for all of them."""

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ParamSpec

import pytest

from penstock.cluster.coordinator import Coordinator, Refused, Version, Versioned
from penstock.cluster.directory import DirectoryCoordinator
from penstock.cluster.record import Leader, ShardRecord
from penstock.model.errors import StorageError

P = ParamSpec("P")
REPLICAS = [f"{number:032x}" for number in range(1, 4)]


def scenario(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run a test in a loop of its own, for at most half a minute."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 30))

    return run


def record(epoch: int = 1, *, boot: int = 7, in_sync: int = 3) -> ShardRecord:
    replicas = {replica: f"mq-{number}" for number, replica in enumerate(REPLICAS)}
    leader = Leader(broker="mq-0", replica=REPLICAS[0], boot=boot)
    return ShardRecord(epoch=epoch, leader=leader, in_sync=tuple(REPLICAS[:in_sync]), replicas=replicas, min_in_sync=2)


@pytest.fixture(params=["directory"])
def coordinator(request: pytest.FixtureRequest, tmp_path: Path) -> Coordinator:
    coordinators: dict[str, Callable[[Path], Coordinator]] = {"directory": DirectoryCoordinator}
    return coordinators[request.param](tmp_path / "coordinator")


async def changed(coordinator: Coordinator, base: Version | None, new: ShardRecord) -> Version:
    version = await coordinator.change("orders.0", base, new)
    assert not isinstance(version, Refused)
    return version


@scenario
async def test_a_record_is_created_once(coordinator: Coordinator) -> None:
    assert await coordinator.read("orders.0") is None
    version = await changed(coordinator, None, record())

    assert await coordinator.read("orders.0") == Versioned(record(), version)
    assert await coordinator.change("orders.0", None, record(boot=8)) is Refused.CONFLICT
    assert await coordinator.read("orders.1") is None


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


@scenario
async def test_a_watch_shows_the_record_and_its_changes(coordinator: Coordinator) -> None:
    version = await changed(coordinator, None, record())
    watch = aiter(coordinator.watch("orders.0"))

    assert await anext(watch) == Versioned(record(), version)
    version = await changed(coordinator, version, record(2))
    assert await anext(watch) == Versioned(record(2), version)


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


@scenario
async def test_a_corrupt_record_is_refused_and_never_replaced(tmp_path: Path) -> None:
    coordinator = DirectoryCoordinator(tmp_path)
    version = await changed(coordinator, None, record())
    path = tmp_path / "shard-orders.0.json"
    value = json.loads(path.read_text())
    value["record"]["in_sync"].append("0" * 32)
    path.write_text(json.dumps(value))

    with pytest.raises(StorageError, match="is not a shard's record"):
        await coordinator.read("orders.0")
    with pytest.raises(StorageError, match="is not a shard's record"):
        await coordinator.change("orders.0", version, record(2))
    assert json.loads(path.read_text()) == value


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "A", "a" * 201])
@scenario
async def test_a_name_that_is_no_file_s_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="a name has 1 to 200"):
        await DirectoryCoordinator(tmp_path).read(name)
