"""Many changes of users at once: none leaves a broker without administrators, and none holds up the others."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from penstock.identity import User, Users
from penstock.model.errors import PreconditionFailedError
from penstock.services import accounts as accounts_module
from penstock.services.accounts import Accounts
from penstock.services.definitions_users import DefinitionsUsers
from penstock.services.user_limits import LimitsOfUsers
from penstock.storage import DataDirectory, deletions_json, read_users
from penstock.storage.deletions import complete_deletions
from support.waiting import eventually

Scenario = Callable[[Accounts], Awaitable[Any]]


def play(path: Path, scenario: Scenario) -> Any:
    async def run() -> Any:
        accounts = Accounts.open(path, "anna", "secret")
        try:
            return await scenario(accounts)
        finally:
            await accounts.settled()
            accounts.close()

    return asyncio.run(run())


async def take_the_tag(accounts: Accounts) -> None:
    await accounts.put_user("ben", None, [])


async def delete(accounts: Accounts) -> None:
    await accounts.delete_user("ben")


async def import_without_tag(accounts: Accounts) -> None:
    limits = LimitsOfUsers(Path("unused"), {})
    await DefinitionsUsers(accounts, limits).import_users([{"name": "ben", "password_hash": "", "tags": []}])


@pytest.mark.parametrize("change", [take_the_tag, delete, import_without_tag])
def test_a_kill_during_the_deletion_of_an_administrator_leaves_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Accounts], Coroutine[Any, Any, None]]
) -> None:
    """Each change alone left an administrator. A start completed both, and left none."""
    may_write, pictures = threading.Event(), []
    write = accounts_module._write
    path = tmp_path / "users.json"

    def wait_and_write(path: Path, users: Users) -> None:
        assert may_write.wait(60)
        pictures.append({file.name: file.read_bytes() for file in tmp_path.glob("*.json")})
        write(path, users)
        pictures.append({file.name: file.read_bytes() for file in tmp_path.glob("*.json")})

    async def scenario(accounts: Accounts) -> None:
        await accounts.put_user("ben", "secret", ["administrator"])
        monkeypatch.setattr(accounts_module, "_write", wait_and_write)
        deleting = asyncio.create_task(accounts.delete_user("anna"))
        await asyncio.to_thread(eventually, (tmp_path / "deletions.json").exists, True)
        changing = asyncio.create_task(change(accounts))
        await asyncio.sleep(0.05)
        may_write.set()
        await deleting
        with pytest.raises(PreconditionFailedError, match="administrator"):
            await changing
        await accounts.put_user("cleo", "secret", ["administrator"])
        await change(accounts)

    play(path, scenario)

    assert len(pictures) > 2
    for number, files in enumerate(pictures):
        copy = tmp_path / f"copy-{number}"
        copy.mkdir()
        for name, content in files.items():
            (copy / name).write_bytes(content)
        with DataDirectory.open(copy) as data:
            complete_deletions(data)
        left = read_users(copy / "users.json") or []
        assert [user.name for user in left if "administrator" in user.tags], files


def test_many_deletions_at_once_are_recorded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waited for two writings of its own on a thread, and changes of vhosts waited for the threads."""
    written = []
    write = deletions_json.write_deletions

    def count(path: Path, deletions: Any) -> None:
        written.append(len(deletions))
        write(path, deletions)

    monkeypatch.setattr(deletions_json, "write_deletions", count)

    async def scenario(accounts: Accounts) -> None:
        await accounts.change(lambda users: users.merge(User(f"user-{number}", "") for number in range(200)))
        await asyncio.gather(*(accounts.delete_user(f"user-{number}") for number in range(200)))
        assert [user.name for user in accounts.users()] == ["anna"]

    play(tmp_path / "users.json", scenario)
    assert len(written) <= 20
    assert max(written) <= 200
    assert not (tmp_path / "deletions.json").exists()


def test_a_change_looks_at_the_users_that_it_changes_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each looked at all users: deleting 1,000 of 12,000 stopped the broker for five seconds."""
    looked_at: list[str] = []

    async def scenario(accounts: Accounts) -> None:
        await accounts.change(lambda users: users.merge(User(f"user-{number}", "") for number in range(1_000)))
        is_administrator = User.is_administrator.fget  # type: ignore[attr-defined]

        def look(user: User) -> bool:
            looked_at.append(user.name)
            return bool(is_administrator(user))

        monkeypatch.setattr(User, "is_administrator", property(look))
        await accounts.put_user("user-1", None, ["monitoring"])
        await accounts.delete_user("user-2")

    play(tmp_path / "users.json", scenario)
    assert set(looked_at) <= {"user-1", "user-2"}
