"""Definitions, node.json and logs through kills and power failures at every step of starts, declares and deletes.

Nothing answered is lost, nothing deleted comes back, no sequence is assigned twice, and no start is refused. The order
of a start is the launcher's; the log only knows how to skip sequences.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.metadata.commands import DeclareQueue
from penstock.model.errors import NotFoundError
from penstock.model.names import DEFAULT_VHOST, ConnectionId, QueueId, QueueName, VhostName
from penstock.model.records import Queue
from penstock.native import LogRecovery
from penstock.node.vhosts_storage import VhostsStorage
from penstock.storage import DataDirectory, Declared, DefinitionsFile, Fold, QueueDeleted, write_users
from penstock.storage.definitions_amqp import create_definitions, proof_path, read_changes
from penstock.storage.definitions_proof import ProofFile
from penstock.storage.deletions import complete_deletions
from penstock.storage.directory import directory_name
from penstock.storage.jsonfiles import sync_directory, write_file
from penstock.vhost.vhosts import Vhosts
from support.power import Picture, Power, restore
from support.vhost_fakes import FakeShard, Tasks, rights

pytestmark = pytest.mark.slow
RAISE = 1_000
BLUE = VhostName("blue")
SHARDS = 3
Queues = dict[tuple[str, str], bool]


@pytest.fixture(autouse=True)
def without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip real syncs for thousands of starts: the recorder tracks durability."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _descriptor: None)


@dataclass
class Told:
    """Certain knowledge of clients: whether a vhost or a queue (by vhost and name) exists, and sequences they saw."""

    vhosts: dict[str, bool] = field(default_factory=dict)
    queues: Queues = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)

    def copy(self) -> "Told":
        return Told(dict(self.vhosts), dict(self.queues), list(self.numbers))


class Log(FakeShard):
    """Its file has the number of skips, then a byte for each sequence, never synced."""

    def __init__(self, name: str, directory: str, raises: bool) -> None:
        super().__init__()
        self.name = name
        self.recovery = LogRecovery()
        path = Path(directory) / "msgs.0000000001"
        content = path.read_bytes() if path.exists() else b""
        if raises or not content:
            write_file(path, bytes([sum(content[:1]) + raises]) + content[1:])
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        self._logs = Path(directory) / "logs"
        self.shard_count = 1 + len(list(self._logs.glob("*/msgs.0000000001")))

    def next_number(self) -> int:
        os.write(self._file, b".")
        return os.pread(self._file, 1, 0)[0] * RAISE + os.fstat(self._file).st_size

    def sync(self) -> None:
        os.fdatasync(self._file)

    def grow(self, count: int) -> None:
        for number in range(1, count):
            folder = self._logs / str(number)
            for path in (self._logs, folder):
                if not path.exists():
                    path.mkdir()
                    sync_directory(path.parent)
            write_file(folder / "msgs.0000000001", b"")
        super().grow(count)

    def close(self, *, delete: bool) -> None:
        os.close(self._file)
        super().close(delete=delete)


async def nothing(_vhost: str) -> None:
    """There are no permissions to delete."""


class Logs:
    def __init__(self) -> None:
        self.open: dict[str, Log] = {}

    def open_shard(self, name: str, directory: str, *, page_cache_lost: bool) -> Log:
        self.open[name] = Log(name, directory, page_cache_lost)
        return self.open[name]


class World:
    """One boot of a broker."""

    def __init__(self, vhosts: Vhosts, logs: Logs, told: Told) -> None:
        self.vhosts = vhosts
        self.logs = logs
        self.told = told

    async def declare(self, vhost: VhostName, name: str) -> None:
        self.told.queues.pop((vhost, name), None)
        await self.vhosts.get(vhost).declare_queue(rights(), DeclareQueue(QueueName(name), ConnectionId(0)))
        self.told.queues[vhost, name] = True

    async def delete(self, vhost: VhostName, name: str) -> None:
        self.told.queues.pop((vhost, name), None)
        with suppress(NotFoundError):
            await self.vhosts.get(vhost).delete_queue(rights(), QueueName(name))
        self.told.queues[vhost, name] = False

    async def make(self, vhost: VhostName) -> None:
        self.told.vhosts.pop(vhost, None)
        await self.vhosts.make(vhost, SHARDS)
        self.told.vhosts[vhost] = True

    async def drop(self, vhost: VhostName) -> None:
        self.told.vhosts.pop(vhost, None)
        self.told.queues = {key: there for key, there in self.told.queues.items() if key[0] != vhost}
        await self.vhosts.delete(rights(), vhost)
        self.told.vhosts[vhost] = False

    def hand_out(self, count: int) -> None:
        for _ in range(count):
            number = self.logs.open[DEFAULT_VHOST].next_number()
            assert number not in self.told.numbers, f"{number} was given before"
            self.told.numbers.append(number)

    def check(self) -> None:
        there = set(self.vhosts.names())
        for made in there - {DEFAULT_VHOST}:
            assert self.logs.open[made].shard_count == SHARDS, "it has all shards, or is not there"
        for vhost, is_there in self.told.vhosts.items():
            assert (vhost in there) == is_there, (vhost, there)
        for (vhost, name), is_there in self.told.queues.items():
            shard = self.logs.open[vhost]
            assert (name in shard.queues.values()) == is_there, (vhost, name, shard.queues)
            assert not is_there or any(shard.queues[number] == name for number in shard.retained or []), (
                "it was deleted"
            )


Script = Callable[[World], Awaitable[None]]


async def live(root: Path, boot: str, told: Told, script: Script) -> None:
    """Start as the launcher does, run the script, and stop cleanly."""
    boot_file = root.with_name("boot")
    boot_file.write_text(boot)
    tasks, logs = Tasks(), Logs()
    with DataDirectory.open(root, boot_file) as directory:
        directory.check_whole()
        complete_deletions(directory)
        if not directory.users_file.exists():
            write_users(directory.users_file, [])
        storage = VhostsStorage(directory, cast(Any, logs), nothing)
        vhosts = Vhosts(storage, tasks.spawn, lambda: "0123456789abcdefghijkl")
        try:
            await vhosts.open_all()
            if not directory.vhosts_file.exists():
                await vhosts.make(DEFAULT_VHOST)
            directory.begin(vhosts.names())
            world = World(vhosts, logs, told)
            told.vhosts[DEFAULT_VHOST] = True
            world.check()
            await script(world)
            await vhosts.close()
        finally:
            await storage.close()
            await tasks.end()
        for log in [log for log in logs.open.values() if not log.is_closed]:
            log.sync()
            log.close(delete=False)
        directory.mark_clean()


def play(root: Path, boot: str, told: Told, script: Script) -> None:
    asyncio.run(live(root, boot, told, script))


def record(root: Path, boot: str, told: Told, script: Script) -> Sequence[Picture]:
    power = Power(root, told.copy)
    root.mkdir(parents=True, exist_ok=True)
    with power.recorded():
        play(root, boot, told, script)
    return power.pictures


async def day(world: World) -> None:
    await world.declare(DEFAULT_VHOST, "kept")
    world.hand_out(2)
    await world.declare(DEFAULT_VHOST, "gone")
    await world.delete(DEFAULT_VHOST, "gone")
    await world.make(BLUE)
    await world.declare(BLUE, "letters")
    world.hand_out(1)
    await world.drop(BLUE)
    await world.make(BLUE)
    await world.declare(BLUE, "again")


async def another_day(world: World) -> None:
    world.hand_out(3)
    await world.declare(DEFAULT_VHOST, "more")


def pictures_of_a_day(tmp_path: Path) -> Sequence[Picture]:
    return record(tmp_path / "day" / "data", "boot-1", Told(), day)


def boot_after(picture: Picture, boot: str, another: str) -> str:
    return boot if picture.is_kill else another


def test_what_is_left_at_any_step_starts_with_all_that_was_answered(tmp_path: Path) -> None:
    pictures = pictures_of_a_day(tmp_path)

    assert len(pictures) > 100
    for number, picture in enumerate(pictures):
        root = tmp_path / str(number) / "data"
        restore(picture.tree, root)
        told = picture.note.copy()
        play(root, boot_after(picture, "boot-1", "boot-2"), told, another_day)
        play(root, "boot-3", told, another_day)


def proven_queues(root: Path, vhost: str) -> set[str]:
    """Return the queues in the proven part of the definitions, without which a file is refused."""
    path = root / directory_name(vhost) / "definitions.amqp"
    content, proof = path.read_bytes(), ProofFile.open(proof_path(path))
    proof.close()
    fold = Fold()
    fold.apply_all(read_changes(path, next(content[: one.length] for one in proof.proofs if one.holds_for(content)))[0])
    return set(fold.queues)


def test_a_declare_is_answered_when_its_proof_is_on_the_disk(tmp_path: Path) -> None:
    pictures = pictures_of_a_day(tmp_path)

    answered: Queues = {}
    for number, picture in enumerate(pictures):
        root = tmp_path / str(number)
        restore(picture.tree, root)
        for (vhost, name), is_there in picture.note.queues.items():
            assert (name in proven_queues(root, vhost)) == is_there, (number, name)
        answered |= picture.note.queues
    assert sorted(name for _, name in answered) == ["again", "gone", "kept", "letters"]


def test_a_start_that_is_interrupted_at_any_step_takes_nothing_away(tmp_path: Path) -> None:
    pictures = pictures_of_a_day(tmp_path)

    for number, picture in enumerate(pictures[:: len(pictures) // 5]):
        root = tmp_path / str(number) / "data"
        restore(picture.tree, root)
        boot = boot_after(picture, "boot-1", "boot-2")
        for second, interrupted in enumerate(record(root, boot, picture.note.copy(), another_day)):
            again = tmp_path / f"{number}-{second}" / "data"
            restore(interrupted.tree, again)
            told = interrupted.note.copy()
            play(again, boot_after(interrupted, boot, "boot-3"), told, another_day)


def test_a_log_of_an_older_format_is_changed_when_the_new_one_is_stated_on_the_disk(tmp_path: Path) -> None:
    """A version of the older format would take the new files for corruption."""
    root, told = tmp_path / "older" / "data", Told()
    root.mkdir(parents=True)
    play(root, "boot-1", told, day)
    node, log = root / "node.json", f"{directory_name(DEFAULT_VHOST)}/msgs.0000000001"
    node.write_text(json.dumps(json.loads(node.read_text()) | {"format": 1}))
    (root / "clean").unlink()
    before = (root / log).read_bytes()

    pictures = record(root, "boot-2", told, another_day)

    trees = [dict(picture.tree) for picture in pictures]
    formats = [(json.loads(tree["node.json"] or b"")["format"], tree[log]) for tree in trees]
    assert {format_ for format_, content in formats if content == before} == {1, 2}
    assert {format_ for format_, content in formats if content != before} == {2}
    for number, picture in enumerate(pictures):
        again = tmp_path / str(number) / "data"
        restore(picture.tree, again)
        play(again, boot_after(picture, "boot-2", "boot-3"), picture.note.copy(), another_day)
        assert json.loads((again / "node.json").read_text())["format"] == 2


def test_a_file_that_is_written_again_is_whole_at_every_step(tmp_path: Path) -> None:
    told: list[QueueName] = []
    path = tmp_path / "folder" / "definitions.amqp"

    async def changes() -> None:
        file, _ = DefinitionsFile.open(path, 4, is_proven=True)
        for number in range(1, 7):
            name = QueueName(f"q{number}")
            await file.append([Declared(Queue(QueueId(number), name)), Declared(Queue(QueueId(9), QueueName("gone")))])
            told.append(name)
            await file.append([QueueDeleted(QueueName("gone"))])
        await file.close()

    path.parent.mkdir()
    create_definitions(path)
    power = Power(path.parent, lambda: list(told))
    with power.recorded():
        asyncio.run(changes())

    assert any("definitions.amqp.new" in dict(picture.tree) for picture in power.pictures)
    for number, picture in enumerate(power.pictures):
        root = tmp_path / str(number)
        restore(picture.tree, root)
        file, found = DefinitionsFile.open(root / path.name, is_proven=True)
        asyncio.run(file.close())
        fold = Fold()
        fold.apply_all(found)
        assert set(picture.note) <= set(fold.queues)
