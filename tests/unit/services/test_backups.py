"""A backup while a vhost's disk hangs: the backup is refused by the vhost's name, and other vhosts can be deleted."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.kit.clock import SystemClock
from penstock.model.errors import InvalidArgumentError, PreconditionFailedError, StorageError, Thing
from penstock.model.names import ConnectionId
from penstock.services.backups import Backups
from penstock.storage import DataDirectory, write_users


class Vhost:
    def __init__(self, name: str) -> None:
        self.name = name
        self.is_free = asyncio.Event()
        self.is_closed = False
        self.fault: StorageError | None = None

    async def begin_backup(self) -> "Vhost":
        await self.is_free.wait()
        if self.fault is not None:
            raise self.fault
        return self

    def close(self) -> None:
        self.is_closed = True


class Vhosts:
    def __init__(self, *vhosts: Vhost) -> None:
        self._vhosts = vhosts
        self.is_kept = False

    @contextmanager
    def keep(self) -> Iterator[tuple[Vhost, ...]]:
        self.is_kept = True
        try:
            yield self._vhosts
        finally:
            self.is_kept = False


def backups_of(vhosts: Any, path: Path) -> Backups:
    data: Any = SimpleNamespace(path=path / "data", deletions=SimpleNamespace(ended_count=0))
    return Backups(data, vhosts, SystemClock(), fix_seconds=0.05)


def test_a_vhost_that_hangs_refuses_the_backup_by_name_and_nothing_stays_fixed(tmp_path: Path) -> None:
    """The backup waited for ever, and every vhost was kept from being deleted."""

    async def scenario() -> None:
        calm, slow = Vhost("calm"), Vhost("slow")
        calm.is_free.set()
        vhosts = Vhosts(calm, slow)
        backups = backups_of(vhosts, tmp_path)
        for _ in range(2):  # the second one is not refused for the first
            with pytest.raises(PreconditionFailedError, match="no answer of vhost 'slow'"):
                await asyncio.wait_for(backups.write(str(tmp_path / "copy")), 5)
            assert not vhosts.is_kept
        await asyncio.sleep(0)
        assert (calm.is_closed, slow.is_closed) == (True, False)

        slow.is_free.set()
        await asyncio.sleep(0.01)
        assert slow.is_closed

    asyncio.run(scenario())


def test_a_vhost_that_fails_ends_the_backup_with_its_fault(tmp_path: Path) -> None:
    async def scenario() -> None:
        calm, broken = Vhost("calm"), Vhost("broken")
        broken.fault = StorageError(Thing("vhost", "broken"), "has stopped", "see the broker's log")
        for vhost in (calm, broken):
            vhost.is_free.set()
        with pytest.raises(StorageError, match="has stopped"):
            await backups_of(Vhosts(calm, broken), tmp_path).write(str(tmp_path / "copy"))
        await asyncio.sleep(0)
        assert calm.is_closed

    asyncio.run(scenario())


@pytest.mark.parametrize(("deletion_count", "is_refused"), [(1, False), (99, True)])
def test_vhosts_are_fixed_again_when_a_user_was_deleted_meanwhile(
    tmp_path: Path, deletion_count: int, is_refused: bool
) -> None:
    """A log had producers of a user that the copy had not, and a user of that name inherited them."""

    async def scenario() -> None:
        with DataDirectory.open(tmp_path / "data") as data:
            write_users(data.users_file, [])
            vhost = Vhost("calm")
            fixed: list[int] = []

            async def begin_backup() -> Vhost:
                fixed.append(data.deletions.ended_count)
                if len(fixed) <= deletion_count:
                    data.deletions.ended_count += 1
                return vhost

            vhost.begin_backup = begin_backup  # type: ignore[method-assign]
            backups: Any = Backups(data, Vhosts(vhost), SystemClock())  # type: ignore[arg-type]
            if is_refused:
                with pytest.raises(
                    PreconditionFailedError, match="a user or vhost was deleted during each of 8 attempts"
                ):
                    await backups._fix_with_users(Thing("backup", "copy"), [vhost])
            else:
                found, users = await backups._fix_with_users(Thing("backup", "copy"), [vhost])
                assert (found, users.users) == ([vhost], ())
            assert len(fixed) == (8 if is_refused else 2)
            assert vhost.is_closed

    asyncio.run(scenario())


@pytest.mark.parametrize("request_id", ["a/b", "a b", "a" * 129, "é", "a\n"])
def test_a_request_id_that_an_archive_cannot_have_is_refused_and_nothing_is_fixed(
    tmp_path: Path, request_id: str
) -> None:
    vhosts = Vhosts(Vhost("/"))
    backups = backups_of(vhosts, tmp_path)

    for _ in range(2):
        with pytest.raises(InvalidArgumentError, match="request id"):
            asyncio.run(backups.begin("root", ConnectionId(1), request_id))
    assert not vhosts.is_kept
