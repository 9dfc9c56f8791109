"""The administrator whose password is in a file: it follows the file, and what others change is undone."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.model.errors import NotAuthenticatedError
from penstock.model.records import Access
from penstock.services.accounts import Accounts
from penstock.services.administrator import Administrator
from penstock.services.events import Event, Events, PermissionsChanged
from penstock.vhost.vhosts import Vhosts

HOUR = 3_600.0


class Kept:
    """The administrator of one broker, over its restarts."""

    def __init__(self, path: Path) -> None:
        self.accounts = Accounts.open(path, "admin", "one")
        self.events: list[Event] = []
        events = Events()
        events.subscribe(self.events.extend)
        vhosts = cast(Vhosts, _Vhosts())
        self.administrator = Administrator(self.accounts, vhosts, events)

    async def keep(self, password: str, seconds: float = HOUR) -> None:
        await self.administrator.keep("admin", password, seconds)

    async def opens(self, password: str) -> bool:
        try:
            await self.accounts.log_in("admin", password)
        except NotAuthenticatedError:
            return False
        return True


class _Vhosts:
    def by_name(self) -> dict[str, Any]:
        return {"/": None}


def play(path: Path, scenario: Callable[[Kept], Awaitable[None]]) -> None:
    async def run() -> None:
        kept = Kept(path)
        try:
            await scenario(kept)
        finally:
            await kept.accounts.settled()
            kept.accounts.close()

    asyncio.run(run())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "users.json"


def test_a_new_password_counts_at_once_and_the_previous_one_for_a_time(path: Path) -> None:
    async def scenario(kept: Kept) -> None:
        await kept.keep("one")
        await kept.keep("two")

        assert [await kept.opens(each) for each in ("two", "one", "other")] == [True, True, False]
        assert kept.events == [PermissionsChanged("admin")]

    play(path, scenario)


def test_the_previous_password_is_refused_once_its_time_is_over(path: Path) -> None:
    async def scenario(kept: Kept) -> None:
        await kept.keep("one")
        await kept.keep("two", 0.0)

        assert [await kept.opens(each) for each in ("two", "one")] == [True, False]

    play(path, scenario)


def test_the_previous_password_is_checked_once_and_not_at_each_call(path: Path) -> None:
    """Each check costs tens of milliseconds, and clients send their password with each call."""

    async def scenario(kept: Kept) -> None:
        await kept.keep("one")
        await kept.keep("two")
        assert await kept.opens("one")
        checks = kept.accounts.passwords.check_count

        assert all([await kept.opens("one") for _ in range(20)])
        assert kept.accounts.passwords.check_count == checks

    play(path, scenario)


def test_of_all_earlier_passwords_the_last_one_alone_counts(path: Path) -> None:
    async def scenario(kept: Kept) -> None:
        for password in ("one", "two", "three"):
            await kept.keep(password)

        assert [await kept.opens(each) for each in ("three", "two", "one")] == [True, True, False]

    play(path, scenario)


def test_a_password_that_changed_while_the_broker_was_down_counts_and_the_stored_one_for_a_time(path: Path) -> None:
    async def scenario(kept: Kept) -> None:
        await kept.keep("two")

        assert [await kept.opens(each) for each in ("two", "one")] == [True, True]

    play(path, scenario)


def test_a_password_that_others_set_is_replaced_and_not_accepted(path: Path) -> None:
    async def scenario(kept: Kept) -> None:
        await kept.keep("one")
        await kept.accounts.put_user("admin", "theirs", [], force=True)
        await kept.keep("one")

        assert [await kept.opens(each) for each in ("one", "theirs")] == [True, False]
        user = kept.accounts.find("admin")
        assert user is not None
        assert user.is_administrator

    play(path, scenario)


def test_a_password_that_others_set_is_not_accepted_when_the_file_changes_too(path: Path) -> None:
    async def scenario(kept: Kept) -> None:
        await kept.keep("one")
        await kept.accounts.put_user("admin", "theirs", None)
        await kept.keep("two")

        assert [await kept.opens(each) for each in ("two", "theirs")] == [True, False]

    play(path, scenario)


def test_a_tag_that_others_took_is_given_back_and_others_stay(path: Path) -> None:
    async def scenario(kept: Kept) -> None:
        await kept.keep("one")
        await kept.accounts.put_user("admin", None, ["monitoring"], force=True)
        await kept.keep("one")

        user = kept.accounts.find("admin")
        assert user is not None
        assert sorted(tag.value for tag in user.tags) == ["administrator", "monitoring"]

    play(path, scenario)


def test_an_administrator_that_was_deleted_is_made_again_with_every_permission(path: Path) -> None:
    async def scenario(kept: Kept) -> None:
        await kept.keep("one")
        await kept.accounts.delete_user("admin", force=True)
        await kept.keep("one")

        user = await kept.accounts.log_in("admin", "one")
        assert user.is_administrator
        allowance = user.allowance("/")
        assert allowance is not None
        assert allowance.allows(Access.CONFIGURE, "anything")

    play(path, scenario)


def test_what_is_as_it_should_be_is_neither_written_nor_checked_again(path: Path) -> None:
    async def scenario(kept: Kept) -> None:
        await kept.keep("one")
        checks = kept.accounts.passwords.check_count
        for _ in range(10):
            await kept.keep("one")

        assert kept.accounts.passwords.check_count == checks
        assert kept.events == []

    play(path, scenario)


def test_a_change_is_audited_without_the_password(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario(kept: Kept) -> None:
        await kept.keep("one")
        await kept.keep("secret-two")

    play(path, scenario)

    text = capsys.readouterr().out
    assert "KeepAdministrator" in text
    assert "secret-two" not in text
