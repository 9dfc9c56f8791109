"""A coordinator in a directory reads its files again whenever they changed, and replaces none that is corrupt."""

import json
import os
import shutil
from pathlib import Path

import pytest

from penstock.cluster.coordinator import Refused, Versioned
from penstock.cluster.directory import DirectoryCoordinator, look_at
from penstock.model.errors import StorageError
from support.remotes import changed, in_loop, record


@in_loop
async def test_a_version_does_not_come_back_when_the_coordinator_is_restored_from_a_copy(tmp_path: Path) -> None:
    coordinator = DirectoryCoordinator(tmp_path / "now")
    first = await changed(coordinator, None, record())
    shutil.copytree(tmp_path / "now", tmp_path / "copy")
    lost = await changed(coordinator, first, record(2))
    shutil.rmtree(tmp_path / "now")
    shutil.copytree(tmp_path / "copy", tmp_path / "now")

    assert await coordinator.read("orders.0") == Versioned(record(), first)
    assert await coordinator.change("orders.0", lost, record(3)) is Refused.CONFLICT
    again = await changed(coordinator, first, record(2))
    assert again not in (first, lost)


@in_loop
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


@in_loop
async def test_a_watch_of_a_directory_reads_files_that_changed_alone(tmp_path: Path) -> None:
    coordinator = DirectoryCoordinator(tmp_path)
    version = await changed(coordinator, None, record())
    await changed(coordinator, None, record(), "orders.1")
    path = tmp_path / "shard-orders.0.json"

    first = look_at(tmp_path, {})
    second = look_at(tmp_path, first)
    path.chmod(0)  # it is not read any more, also by root
    third = look_at(tmp_path, second)
    assert [sorted(each) for each in (first, second, third)] == [["orders.0", "orders.1"]] * 3
    assert [each["orders.0"].is_settled for each in (first, second, third)] == [False, True, True]
    assert third["orders.0"] is second["orders.0"]
    path.chmod(0o600)

    await changed(coordinator, version, record(2))
    fourth = look_at(tmp_path, third)
    assert fourth["orders.0"].content == path.read_bytes()
    assert fourth["orders.1"] is third["orders.1"]
    path.unlink()
    assert list(look_at(tmp_path, fourth)) == ["orders.1"]


def test_a_file_that_changed_twice_at_one_time_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "shard-a.json"
    path.write_text("one")
    times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    before = look_at(tmp_path, {})

    path.write_text("two")
    os.utime(path, ns=times)

    assert look_at(tmp_path, before)["a"].content == b"two"


@in_loop
async def test_a_file_that_is_corrupt_ends_the_watch_of_its_shard_alone(tmp_path: Path) -> None:
    coordinator = DirectoryCoordinator(tmp_path)
    version = await changed(coordinator, None, record())
    (tmp_path / "shard-orders.1.json").write_text("{")
    watch = coordinator.watch("orders.0")
    assert (await anext(watch)).version == version

    with pytest.raises(StorageError, match="is not valid JSON"):
        await anext(coordinator.watch("orders.1"))
    version = await changed(coordinator, version, record(2))
    assert (await anext(watch)).version == version
    await coordinator.close()


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "A", "a" * 201])
@in_loop
async def test_a_name_that_is_no_file_s_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="a name has 1 to 200"):
        await DirectoryCoordinator(tmp_path).read(name)
