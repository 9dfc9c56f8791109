"""Deleting a vhost, a user and a policy, interrupted at every step on the disk by a kill or a failure of power.

After a start either nothing is deleted or all of it, and a thing of the same name that is made then inherits nothing.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.identity import Permission, TopicPermission
from penstock.metadata.policies import Policy
from penstock.model.errors import DiskFullError, NotFoundError, PreconditionFailedError, StorageError
from penstock.model.limits import NO_LIMITS, Limits
from penstock.model.names import DEFAULT_VHOST, VhostName
from penstock.node.vhosts_storage import VhostsStorage
from penstock.services.accounts import Accounts
from penstock.services.user_limits import LimitsOfUsers
from penstock.storage import DataDirectory, deletions_json
from penstock.storage.deletions import complete_deletions
from penstock.storage.jsonfiles import write_file
from penstock.storage.vhost_files import delete_vhost_directory
from penstock.vhost.vhosts import Vhosts
from support.power import Power, restore
from support.vhost_fakes import FakeShard, Tasks, rights

BLUE = VhostName("blue")
ALL = Permission.compile(".*", ".*", ".*")


@pytest.fixture(autouse=True)
def without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of starts: the recorder knows what is durable."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _descriptor: None)


class OwnersShard(FakeShard):
    """A shard whose log has the owners of producers, and each removal of one is a step on the disk."""

    def __init__(self, name: str, log: Path) -> None:
        super().__init__()
        self.name = name
        self.log = log
        self.is_full = False
        if not log.exists():
            log.touch()
        self.producer_owners = dict(line.split("=") for line in log.read_text().split())

    def own(self, producer: str, user: str) -> None:
        self.producer_owners[producer] = user
        write_file(self.log, self._text())

    def delete_producers_of(self, user: str, /) -> int:
        owned = [name for name, owner in self.producer_owners.items() if owner == user]
        for name in owned:
            if self.is_full:
                raise DiskFullError(cast(Any, "log"), "finds no room", "free space")
            del self.producer_owners[name]
            write_file(self.log, self._text())
        return len(owned)

    def _text(self) -> bytes:
        return "".join(f"{name}={owner}\n" for name, owner in self.producer_owners.items()).encode()


class Logs:
    """An engine whose logs are one segment with the owners of producers, and whose policies are not looked at."""

    def __init__(self) -> None:
        self.shards: dict[str, OwnersShard] = {}

    def open_shard(self, name: str, directory: str, *, page_cache_lost: bool) -> OwnersShard:
        self.shards[name] = OwnersShard(name, Path(directory) / "msgs.0000000001")
        return self.shards[name]


@dataclass
class World:
    """One life of a broker."""

    vhosts: Vhosts
    accounts: Accounts
    limits: LimitsOfUsers
    logs: Logs

    async def fill(self) -> None:
        """Make a vhost, a user and a policy, with everything that goes with each."""
        await self.vhosts.make(BLUE)
        await self.vhosts.get(BLUE).set_limits(rights(), Limits(queues_max=7))
        await self.vhosts.get(BLUE).set_policy(rights(), POLICY, is_operator=True)
        await self.vhosts.get(DEFAULT_VHOST).set_policy(rights(), POLICY, is_operator=False)
        for user in ("anna", "admin"):
            await self.accounts.put_user(user, "", [])
            await self.limits.set(user, Limits(publish_rate=5))
            for vhost in (BLUE, DEFAULT_VHOST):
                await self.accounts.set_permission(user, vhost, ALL)
                await self.accounts.set_topic(user, vhost, "logs", TopicPermission.compile(user, vhost, "a", "b"))
                for number in range(2):
                    self.logs.shards[vhost].own(f"{user}-{number}", user)

    async def delete_user(self, name: str) -> None:
        await self.accounts.delete_user(name, forget=self.vhosts.delete_producers_of)

    def vhost_parts(self) -> list[bool]:
        """Return for each part of the vhost whether it is there."""
        there = BLUE in self.vhosts.names()
        users = [user for user in self.accounts.users() if user.name != "guest"]
        return [there, *(BLUE in user.permissions for user in users), *(BLUE in user.topics for user in users)]

    def user_parts(self) -> list[bool]:
        there = any(user.name == "admin" for user in self.accounts.users())
        return [there, self.limits.find("admin") != NO_LIMITS, *self.producers_of("admin").values()]

    def producers_of(self, user: str) -> dict[str, bool]:
        """Return for each vhost whether the user owns producers in it."""
        return {name: user in shard.producer_owners.values() for name, shard in self.logs.shards.items()}

    async def policy_parts(self) -> list[bool]:
        return [bool(await self.vhosts.get(DEFAULT_VHOST).list_policies(rights(), is_operator=False))]


POLICY = Policy("p", "^z", {"durability": "disk"})
Script = Callable[[World], Awaitable[None]]


def play(root: Path, script: Script) -> None:
    """Start as the launcher does, run the script, and end without an orderly stop."""

    async def live() -> None:
        tasks = Tasks()
        with DataDirectory.open(root) as directory:
            directory.check_whole()
            complete_deletions(directory)
            limits = LimitsOfUsers.open(directory.user_limits_file)
            accounts = Accounts.open(directory.users_file, "guest", "", limits, directory.deletions)
            logs = Logs()
            storage = VhostsStorage(directory, cast(Any, logs), accounts.forget_vhost)
            vhosts = Vhosts(storage, tasks.spawn, lambda: "0123456789abcdefghijkl")
            try:
                await vhosts.open_all()
                if not directory.vhosts_file.exists():
                    await vhosts.make(DEFAULT_VHOST)
                directory.begin(vhosts.names())
                await accounts.complete_deletions(vhosts.delete_producers_of)
                await script(World(vhosts, accounts, limits, logs))
                await vhosts.close()
            finally:
                await storage.close()
                await accounts.settled()
                accounts.close()
                await tasks.end()

    asyncio.run(live())


async def fill(world: World) -> None:
    await world.fill()


async def delete_vhost(world: World) -> None:
    await world.vhosts.delete(rights(), BLUE)


async def delete_user(world: World) -> None:
    await world.delete_user("admin")


async def delete_policy(world: World) -> None:
    await world.vhosts.get(DEFAULT_VHOST).delete_policy(rights(), "p", is_operator=False)


async def check_vhost(world: World) -> None:
    parts = world.vhost_parts()
    assert len(set(parts)) == 1, parts
    if parts[0]:
        assert world.vhosts.get(BLUE).limits == Limits(queues_max=7)
        assert await world.vhosts.get(BLUE).list_policies(rights(), is_operator=True) == [POLICY]
        return
    await world.vhosts.make(BLUE)
    assert world.vhost_parts() == [True, False, False, False, False]
    assert world.vhosts.get(BLUE).limits == NO_LIMITS
    assert await world.vhosts.get(BLUE).list_policies(rights(), is_operator=True) == []


async def check_user(world: World) -> None:
    parts = world.user_parts()
    assert len(set(parts)) == 1, parts
    if not parts[0]:
        await world.accounts.put_user("admin", "", [])
        (user,) = [user for user in world.accounts.users() if user.name == "admin"]
        assert (dict(user.permissions), dict(user.topics)) == ({}, {})
        assert world.user_parts() == [True, False, False, False]


async def check_policy(world: World) -> None:
    assert len(await world.policy_parts()) == 1


async def nothing(_world: World) -> None:
    """Do nothing but start."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("delete", "check", "steps_min"),
    [(delete_vhost, check_vhost, 40), (delete_user, check_user, 20), (delete_policy, check_policy, 8)],
)
def test_a_deletion_that_is_interrupted_at_any_step_is_done_or_not_begun_after_a_start(
    tmp_path: Path, delete: Script, check: Script, steps_min: int
) -> None:
    root = tmp_path / "before"
    play(root, fill)
    (root / "admin-password").write_text("secret")
    answered: list[bool] = []

    async def delete_and_note(world: World) -> None:
        await delete(world)
        answered.append(True)

    power = Power(root, lambda: bool(answered))
    with power.recorded():
        play(root, delete_and_note)

    assert len(power.pictures) > steps_min
    outcomes: set[bool] = set()
    for number, picture in enumerate(power.pictures):
        again = tmp_path / str(number)
        restore(picture.tree, again)

        async def check_and_note(world: World, was_answered: bool = picture.note) -> None:
            parts: dict[Script, list[bool]] = {
                delete_vhost: world.vhost_parts(),
                delete_user: world.user_parts(),
                delete_policy: await world.policy_parts(),
            }
            is_there = parts[delete][0]
            assert not (was_answered and is_there), "it was answered and is there again"
            outcomes.add(is_there)
            await check(world)

        play(again, check_and_note)
        assert not (again / "deletions.json").exists()
        play(again, nothing)
    assert outcomes == {True, False}
    if delete is delete_user:
        assert not (root / "admin-password").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("delete", "check"), [(delete_vhost, check_vhost), (delete_user, check_user)])
def test_a_start_that_is_interrupted_while_it_completes_a_deletion_is_completed_by_the_next(
    tmp_path: Path, delete: Script, check: Script
) -> None:
    root = tmp_path / "before"
    play(root, fill)
    power = Power(root, lambda: None)
    with power.recorded():
        play(root, delete)
    begun = [picture for picture in power.pictures if "deletions.json" in dict(picture.tree)]
    assert len(begun) > 5
    for number, picture in enumerate(begun[:: len(begun) // 5]):
        once = tmp_path / f"once-{number}"
        restore(picture.tree, once)
        second = Power(once, lambda: None)
        with second.recorded():
            play(once, nothing)
        for other, interrupted in enumerate(second.pictures):
            again = tmp_path / f"again-{number}-{other}"
            restore(interrupted.tree, again)
            play(again, check)


def test_a_deletion_of_a_vhost_that_failed_goes_on_when_it_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_path: Path) -> None:
        raise StorageError(cast(Any, "directory"), "cannot be removed", "repair the disk")

    async def scenario(world: World) -> None:
        await world.fill()
        with monkeypatch.context() as patched:
            patched.setattr("penstock.node.vhosts_storage.delete_vhost_directory", fail)
            with pytest.raises(StorageError, match="cannot be removed"):
                await world.vhosts.delete(rights(), BLUE)
        with pytest.raises(NotFoundError):
            world.vhosts.get(BLUE)
        await world.vhosts.delete(rights(), BLUE)
        assert set(world.vhost_parts()) == {False}
        with pytest.raises(NotFoundError):
            await world.vhosts.delete(rights(), BLUE)

    play(tmp_path / "data", scenario)
    assert not (tmp_path / "data" / "deletions.json").exists()


def test_a_vhost_whose_deletion_failed_is_made_anew_with_nothing_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Path] = []

    def fail_once(path: Path) -> None:
        calls.append(path)
        if len(calls) == 1:
            raise StorageError(cast(Any, "directory"), "cannot be removed", "repair the disk")
        delete_vhost_directory(path)

    async def scenario(world: World) -> None:
        await world.fill()
        monkeypatch.setattr("penstock.node.vhosts_storage.delete_vhost_directory", fail_once)
        with pytest.raises(StorageError):
            await world.vhosts.delete(rights(), BLUE)
        await world.vhosts.make(BLUE)
        assert world.vhost_parts() == [True, False, False, False, False]

    async def look(world: World) -> None:
        assert BLUE in world.vhosts.names(), "the start deletes no vhost that was made anew"

    play(tmp_path / "data", scenario)
    play(tmp_path / "data", look)


def test_a_user_whose_deletion_failed_cannot_be_made_before_it_is_completed(tmp_path: Path) -> None:
    root = tmp_path / "data"

    async def scenario(world: World) -> None:
        await world.fill()
        blocking = root / "user_limits.json.new"
        blocking.mkdir()  # so that the limits cannot be written
        with pytest.raises(StorageError):
            await world.delete_user("anna")
        with pytest.raises(PreconditionFailedError, match="is being deleted"):
            await world.accounts.put_user("anna", "", [])

        blocking.rmdir()
        await world.delete_user("anna")
        await world.accounts.put_user("anna", "", [])
        assert world.limits.find("anna") == NO_LIMITS

    play(root, scenario)
    assert not (root / "deletions.json").exists()


def test_a_user_whose_producers_cannot_be_deleted_is_not_made_anew_before_they_are(tmp_path: Path) -> None:
    root = tmp_path / "data"

    async def begin(world: World) -> None:
        await world.fill()
        world.logs.shards[BLUE].is_full = True
        for _ in range(2):
            with pytest.raises(DiskFullError):
                await world.delete_user("anna")
            assert world.producers_of("anna") == {BLUE: True, DEFAULT_VHOST: False}, (
                "the other vhost was not kept from it"
            )
            with pytest.raises(PreconditionFailedError, match="is being deleted"):
                await world.accounts.put_user("anna", "", [])

        world.logs.shards[BLUE].is_full = False
        await world.delete_user("anna")
        await world.accounts.put_user("anna", "", [])
        assert set(world.producers_of("anna").values()) == {False}
        assert set(world.producers_of("admin").values()) == {True}

    play(root, begin)
    assert not (root / "deletions.json").exists()


def test_a_start_that_cannot_delete_the_producers_of_a_user_leaves_the_deletion_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "data"
    play(root, fill)
    (root / "deletions.json").write_text('[{"kind": "user", "name": "anna"}]')

    def fail(_shard: OwnersShard, _user: str) -> int:
        raise StorageError(cast(Any, "log"), "cannot be written", "repair the disk")

    async def is_pending(world: World) -> None:
        with pytest.raises(PreconditionFailedError, match="is being deleted"):
            await world.accounts.put_user("anna", "", [])

    async def is_done(world: World) -> None:
        await world.accounts.put_user("anna", "", [])
        assert set(world.producers_of("anna").values()) == {False}

    with monkeypatch.context() as patched:
        patched.setattr(OwnersShard, "delete_producers_of", fail)
        play(root, is_pending)
    play(root, is_done)


def test_a_user_is_deleted_by_one_call_at_a_time(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        ends = await asyncio.gather(world.delete_user("anna"), world.delete_user("anna"), return_exceptions=True)
        assert [type(end) for end in ends] == [type(None), PreconditionFailedError]
        await world.accounts.put_user("anna", "", [])

        async def forget(user: str) -> None:
            with pytest.raises(PreconditionFailedError, match="retry when that has ended"):
                await world.accounts.put_user(user, "", [])

        await world.accounts.delete_user("anna", forget=forget)

    play(tmp_path / "data", scenario)


def test_a_deletion_that_is_refused_or_cannot_be_written_has_not_begun(tmp_path: Path) -> None:
    root = tmp_path / "data"

    async def scenario(world: World) -> None:
        await world.fill()
        with pytest.raises(PreconditionFailedError, match="administrator"):
            await world.delete_user("guest")
        with pytest.raises(NotFoundError):
            await world.delete_user("never")
        blocking = root / "users.json.new"
        blocking.mkdir()  # so that the users cannot be written
        with pytest.raises(StorageError):
            await world.delete_user("anna")
        assert not (root / "deletions.json").exists()
        blocking.rmdir()
        blocking = root / "deletions.json.new"
        blocking.mkdir()
        for delete in (world.delete_user("anna"), world.vhosts.delete(rights(), BLUE)):
            with pytest.raises(StorageError):
                await delete
        blocking.rmdir()
        assert set(world.vhost_parts()) == {True}
        assert world.vhosts.get(BLUE).fault is None
        await world.accounts.put_user("anna", "", [])

    play(root, scenario)


def test_a_user_whose_deletion_is_in_doubt_keeps_no_vhost_from_being_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vhost's deletion was refused half-way, because it took permissions from a user that was being deleted."""

    def fail(_path: Path, _records: object) -> None:
        raise StorageError(cast(Any, "users.json"), "was written, and its directory cannot be synced", "restart")

    async def scenario(world: World) -> None:
        await world.fill()
        with monkeypatch.context() as patched:
            patched.setattr("penstock.services.accounts.write_users", fail)
            with pytest.raises(StorageError):
                await world.delete_user("anna")
        with pytest.raises(PreconditionFailedError, match="is being deleted"):
            await world.accounts.put_user("anna", "", ["monitoring"])

        await world.vhosts.delete(rights(), BLUE)
        assert set(world.vhost_parts()) == {False}

    play(tmp_path / "data", scenario)
    assert json.loads((tmp_path / "data" / "deletions.json").read_text()) == [{"kind": "user", "name": "anna"}]


def test_a_vhost_whose_deletion_may_be_recorded_is_not_used_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took queues and messages, which the next start deleted, and making it again answered that it exists."""
    write = deletions_json.write_deletions

    def write_and_fail(path: Path, deletions: tuple[deletions_json.Deletion, ...]) -> None:
        write(path, deletions)
        raise StorageError(cast(Any, "deletions.json"), "was written, and its directory cannot be synced", "restart")

    async def scenario(world: World) -> None:
        await world.fill()
        old = world.vhosts.get(BLUE)
        with monkeypatch.context() as patched:
            patched.setattr(deletions_json, "write_deletions", write_and_fail)
            with pytest.raises(StorageError):
                await world.vhosts.delete(rights(), BLUE)
        assert old.fault is not None
        with pytest.raises(NotFoundError):
            world.vhosts.get(BLUE)
        assert await world.vhosts.make(BLUE)
        assert world.vhost_parts() == [True, False, False, False, False]

    async def look(world: World) -> None:
        assert BLUE in world.vhosts.names(), "the start deletes no vhost that was made anew"

    play(tmp_path / "data", scenario)
    play(tmp_path / "data", look)


def test_a_permission_that_is_being_written_goes_with_its_vhost(tmp_path: Path) -> None:
    """It was looked for among the users on the disk, and stayed."""

    async def scenario(world: World) -> None:
        await world.accounts.put_user("otto", "", [])
        await asyncio.gather(world.accounts.set_permission("otto", BLUE, ALL), world.accounts.forget_vhost(BLUE))
        assert not any(user.names_vhost(BLUE) for user in world.accounts.users())

    play(tmp_path / "data", scenario)


@pytest.mark.parametrize("content", ["{}", '[{"kind": "queue", "name": "a"}]', '[{"kind": "user"}]', "["])
def test_a_record_of_deletions_that_is_wrong_refuses_the_start(tmp_path: Path, content: str) -> None:
    play(tmp_path / "data", nothing)
    (tmp_path / "data" / "deletions.json").write_text(content)

    with pytest.raises(StorageError, match=r"deletions\.json"):
        play(tmp_path / "data", nothing)


def test_a_deletion_in_the_file_is_completed_whatever_is_left_of_it(tmp_path: Path) -> None:
    root = tmp_path / "data"
    play(root, fill)
    deletions = [{"kind": "vhost", "name": "blue"}, {"kind": "user", "name": "anna"}, {"kind": "user", "name": "no"}]
    (root / "deletions.json").write_text(json.dumps(deletions))

    async def look(world: World) -> None:
        assert set(world.vhost_parts()) == {False}
        assert [user.name for user in world.accounts.users()] == ["guest", "admin"]
        assert list(world.limits.all()) == ["admin"]

    play(root, look)
    assert len([path for path in root.iterdir() if path.is_dir()]) == 1
