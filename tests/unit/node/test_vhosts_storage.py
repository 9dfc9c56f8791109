"""Making and deleting vhosts on the disk, interrupted and retried, with fake logs."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.metadata.effects import PersistDefaultQueueType, PersistLimits, PersistPolicies
from penstock.model.errors import NotWrittenError, StorageError, Thing
from penstock.model.limits import Limits
from penstock.model.names import VhostName
from penstock.model.records import QueueKind
from penstock.node import vhosts_storage
from penstock.node.vhosts_storage import OPENING_THREADS, VhostsStorage
from penstock.storage import DataDirectory, read_vhosts, write_users, write_vhosts
from penstock.storage.deletions import complete_deletions
from penstock.storage.vhost_files import delete_vhost_directory, mark_deleted

BLUE = VhostName("blue")
RED = VhostName("red")


class NoShard:
    """The log of a vhost: its shards are folders."""

    def __init__(self, directory: Path, shards_max: int) -> None:
        self.is_closed = False
        self._directory = directory
        self._shards_max = shards_max
        (directory / "msgs.0000000001").touch()

    def grow(self, count: int) -> None:
        for number in range(1, count):
            if number >= self._shards_max:
                raise StorageError(Thing("log", str(self._directory)), "cannot be written: the disk is full", "free it")
            (self._directory / "logs" / str(number)).mkdir(parents=True)

    def close(self, *, delete: bool) -> None:
        assert not delete
        self.is_closed = True


class NoEngine:
    """Opens every log, unless told to fail; a vhost gets fewer shards than `shards_max`, then the disk is full."""

    fails = False
    shards_max = 64

    def __init__(self) -> None:
        self.opened: list[NoShard] = []

    def open_shard(self, name: str, directory: str, *, page_cache_lost: bool) -> NoShard:
        if self.fails:
            raise StorageError(Thing("log", directory), "cannot be opened: it is corrupt", "repair it")
        self.opened.append(NoShard(Path(directory), self.shards_max))
        return self.opened[-1]


Scenario = Callable[[VhostsStorage, NoEngine], Awaitable[None]]


def play(path: Path, scenario: Scenario) -> None:
    async def run() -> None:
        engine = NoEngine()
        with DataDirectory.open(path) as directory:
            if not directory.users_file.exists():
                write_users(directory.users_file, [])
            directory.check_whole()
            complete_deletions(directory)
            storage = VhostsStorage(directory, cast(Any, engine), no_permissions)
            try:
                names = await storage.names()
                for name in names:
                    await storage.open(name)
                directory.begin(names)
                await scenario(storage, engine)
            finally:
                await storage.close()

    asyncio.run(run())


async def no_permissions(_vhost: str) -> None:
    """There are none to delete."""


async def nothing(storage: VhostsStorage, engine: NoEngine) -> None:
    pass


def failing(*_: object, **__: object) -> None:
    raise StorageError(Thing("file", "vhosts.json"), "cannot be written", "repair the disk")


def set_all(storage: VhostsStorage) -> Awaitable[None]:
    """Write policies, operator policies and limits of the vhost "blue"."""

    async def run() -> None:
        definitions = (await storage.create(BLUE)).definitions
        limits, default = PersistLimits(Limits(queues_max=3)), PersistDefaultQueueType(QueueKind.QUORUM)
        for entry in (PersistPolicies(()), PersistPolicies((), is_operator=True), limits, default):
            await definitions.append([entry])

    return run()


@pytest.mark.parametrize("file", ["policies.json", "operator_policies.json", "limits.json", "settings.json"])
def test_policies_limits_and_settings_that_vanished_refuse_a_start(tmp_path: Path, file: str) -> None:
    """A start went on without them: an operator's `durability=disk` was no longer effective."""

    async def fill(storage: VhostsStorage, engine: NoEngine) -> None:
        await set_all(storage)

    play(tmp_path / "data", fill)
    (path,) = (tmp_path / "data").glob(f"*/{file}")
    content = path.read_bytes()
    path.unlink()

    for _ in range(2):
        with pytest.raises(StorageError, match=rf"/{file}' is missing.*create it with"):
            play(tmp_path / "data", nothing)
    path.write_text("[]" if "policies" in file else "{}")
    play(tmp_path / "data", nothing)
    path.write_bytes(content)
    play(tmp_path / "data", nothing)


@pytest.mark.parametrize(
    ("entry", "file"),
    [
        (PersistPolicies(()), "policies.json"),
        (PersistLimits(Limits()), "limits.json"),
        (PersistDefaultQueueType(QueueKind.QUORUM), "settings.json"),
    ],
)
def test_policies_limits_and_settings_that_cannot_be_written_are_known_not_to_be_written(
    tmp_path: Path, entry: PersistPolicies | PersistLimits | PersistDefaultQueueType, file: str
) -> None:
    async def write(storage: VhostsStorage, engine: NoEngine) -> None:
        definitions = (await storage.create(BLUE)).definitions
        (folder,) = (tmp_path / "data").glob("*/.vhost")
        blocking = folder.with_name(f"{file}.new")
        blocking.mkdir()  # so that the temporary file cannot be made
        with pytest.raises(NotWrittenError, match="cannot be written"):
            await definitions.append([entry])

        blocking.rmdir()
        await definitions.append([entry])

    play(tmp_path / "data", write)


def test_policies_of_a_vhost_that_was_deleted_are_not_missed(tmp_path: Path) -> None:
    async def delete(storage: VhostsStorage, engine: NoEngine) -> None:
        await set_all(storage)
        await storage.delete(BLUE)
        await storage.create(BLUE)

    play(tmp_path / "data", delete)
    play(tmp_path / "data", nothing)


@pytest.mark.parametrize("step", ["mark_deleted", "write_vhosts", "delete_vhost_directory"])
def test_a_deletion_that_fails_at_any_step_can_be_followed_by_a_start_and_by_a_new_vhost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async def delete(storage: VhostsStorage, engine: NoEngine) -> None:
        await storage.create(BLUE)
        with monkeypatch.context() as patched:
            patched.setattr(vhosts_storage, step, failing)
            with pytest.raises(StorageError, match="cannot be written"):
                await storage.delete(BLUE)

    async def delete_and_create(storage: VhostsStorage, engine: NoEngine) -> None:
        await delete(storage, engine)
        await storage.create(BLUE)

    play(tmp_path / "started", delete)
    play(tmp_path / "started", nothing)
    play(tmp_path / "made", delete_and_create)
    play(tmp_path / "made", nothing)

    assert read_vhosts(tmp_path / "started" / "vhosts.json") == []
    assert read_vhosts(tmp_path / "made" / "vhosts.json") == ["blue"]
    assert not list(tmp_path.glob("*/deletions.json"))


def test_deletions_on_disks_that_hang_keep_no_vhost_from_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four of them took all threads that open vhosts."""
    may_end = threading.Event()

    def hang(path: Path) -> None:
        assert may_end.wait(60)
        delete_vhost_directory(path)

    async def scenario(storage: VhostsStorage, engine: NoEngine) -> None:
        names = [VhostName(f"v{number}") for number in range(OPENING_THREADS)]
        for name in names:
            await storage.create(name)
        monkeypatch.setattr(vhosts_storage, "delete_vhost_directory", hang)
        deleting = [asyncio.ensure_future(storage.delete(name)) for name in names]
        try:
            await asyncio.wait_for(storage.create(BLUE), 30)
        finally:
            may_end.set()
        await asyncio.gather(*deleting)

    play(tmp_path / "data", scenario)


@pytest.mark.parametrize("step", [mark_deleted, delete_vhost_directory])
def test_a_vhost_that_takes_long_to_delete_keeps_no_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: Callable[[Path], None]
) -> None:
    """The first policy of another vhost waited for it, and so did all requests to that vhost."""
    begun, may_end = threading.Event(), threading.Event()

    def slow_step(path: Path) -> None:
        begun.set()
        assert may_end.wait(60)
        step(path)

    async def scenario(storage: VhostsStorage, engine: NoEngine) -> None:
        await storage.create(BLUE)
        red = (await storage.create(VhostName("red"))).definitions
        monkeypatch.setattr(vhosts_storage, step.__name__, slow_step)
        deleting = asyncio.ensure_future(storage.delete(BLUE))
        assert await asyncio.to_thread(begun.wait, 60)
        try:
            await asyncio.wait_for(red.append([PersistPolicies((), is_operator=True)]), 30)
        finally:
            may_end.set()
        await deleting

    play(tmp_path / "data", scenario)


def test_a_vhost_whose_log_could_not_be_opened_when_it_was_made_can_be_made_again(tmp_path: Path) -> None:
    async def scenario(storage: VhostsStorage, engine: NoEngine) -> None:
        engine.fails = True
        with pytest.raises(StorageError, match="corrupt"):
            await storage.create(BLUE)
        engine.fails = False
        await storage.create(BLUE)

    play(tmp_path, scenario)

    assert read_vhosts(tmp_path / "vhosts.json") == ["blue"]


STEPS_OF_A_CREATION = ["create_vhost_directory", "open_vhost_directory", "open_shard", "grow", "write_vhosts"]


@pytest.mark.parametrize("step", STEPS_OF_A_CREATION)
def test_a_creation_that_fails_at_any_step_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Where a shard could not be made, a vhost with one shard stayed."""

    async def begin(storage: VhostsStorage, engine: NoEngine) -> None:
        await storage.create(RED)

    async def create(storage: VhostsStorage, engine: NoEngine) -> None:
        engine.fails, engine.shards_max = step == "open_shard", 2 if step == "grow" else 64
        with monkeypatch.context() as patched:
            if step not in {"open_shard", "grow"}:
                patched.setattr(vhosts_storage, step, failing)
            with pytest.raises(StorageError, match="cannot be"):
                await storage.create(BLUE, 3)
        assert all(shard.is_closed for shard in engine.opened[1:])
        assert len(folders()) == 1

    async def create_twice(storage: VhostsStorage, engine: NoEngine) -> None:
        await create(storage, engine)
        engine.fails, engine.shards_max = False, 64
        await storage.create(BLUE, 3)

    def folders() -> list[str]:
        return [path.name for path in (tmp_path / "data").iterdir() if len(path.name) == 40]

    play(tmp_path / "data", begin)
    play(tmp_path / "data", create)
    play(tmp_path / "data", nothing)
    assert read_vhosts(tmp_path / "data" / "vhosts.json") == ["red"]

    play(tmp_path / "data", create_twice)
    play(tmp_path / "data", nothing)
    (folder,) = (tmp_path / "data").glob("*/logs")
    assert read_vhosts(tmp_path / "data" / "vhosts.json") == ["red", "blue"]
    assert sorted(path.name for path in folder.iterdir()) == ["1", "2"]
    assert not folder.with_name(".deleted").exists()


def test_a_vhost_that_the_list_may_name_stays_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list was renamed, and the sync of its name failed."""

    def failing_late(path: Path, names: list[str]) -> None:
        write_vhosts(path, names)
        failing()

    async def create(storage: VhostsStorage, engine: NoEngine) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(vhosts_storage, "write_vhosts", failing_late)
            with pytest.raises(StorageError, match="cannot be written"):
                await storage.create(BLUE, 3)
        assert all(shard.is_closed for shard in engine.opened)

    async def check(storage: VhostsStorage, engine: NoEngine) -> None:
        assert await storage.names() == [BLUE]

    play(tmp_path, create)
    play(tmp_path, check)
    (folder,) = tmp_path.glob("*/logs")
    assert sorted(path.name for path in folder.iterdir()) == ["1", "2"]


def test_a_list_of_files_that_cannot_be_written_does_not_fail_what_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(storage: VhostsStorage, engine: NoEngine) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(DataDirectory, "note_vhosts", failing)
            await storage.create(BLUE)

    play(tmp_path, scenario)
    play(tmp_path, nothing)


def test_a_vhost_that_a_start_found_can_be_deleted_and_made_again(tmp_path: Path) -> None:
    async def create(storage: VhostsStorage, engine: NoEngine) -> None:
        await storage.create(BLUE)

    async def replace(storage: VhostsStorage, engine: NoEngine) -> None:
        await storage.delete(BLUE)
        await storage.create(BLUE)

    play(tmp_path, create)
    play(tmp_path, replace)
    play(tmp_path, nothing)

    assert read_vhosts(tmp_path / "vhosts.json") == ["blue"]
