"""The file with the administrator's password: what can be used, and that a file that cannot changes nothing."""

import asyncio
from pathlib import Path

import pytest

from penstock.model.errors import StorageError, Thing
from penstock.node.config import ConfigurationError, StartError, load_settings
from penstock.node.first_user import choose_first_user
from penstock.node.password_file import PasswordFile, read_password


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "password"


@pytest.mark.parametrize(
    ("content", "password"),
    [(b"one", "one"), (b"one\n", "one"), (b"one\r\n", "one"), (b" one ", " one "), ("wört".encode(), "wört")],
)
def test_a_file_has_a_password_and_maybe_the_end_of_its_line(path: Path, content: bytes, password: str) -> None:
    path.write_bytes(content)

    assert read_password(path) == password


@pytest.mark.parametrize("content", [b"", b"\n", b"one\ntwo", b"x" * 1_025, b"\xff"])
def test_a_file_without_one_password_is_refused_by_its_name(path: Path, content: bytes) -> None:
    path.write_bytes(content)

    with pytest.raises(StartError, match=str(path)):
        read_password(path)


def test_a_broker_without_users_begins_with_the_password_of_the_file_and_not_without_one(path: Path) -> None:
    flags = {"default_user": "admin", "default_password_file": str(path)}
    settings = load_settings(flags=flags, environment={})
    users = path.with_name("users.json")
    with pytest.raises(StartError):
        choose_first_user(settings, users)

    path.write_text("one\n")
    assert choose_first_user(settings, users).password == "one"

    path.unlink()
    users.write_text("[]")
    assert choose_first_user(settings, users).name == "admin"


def test_a_password_and_a_file_with_one_exclude_each_other(path: Path) -> None:
    with pytest.raises(ConfigurationError, match="exclude each other"):
        load_settings(flags={"default_password": "one", "default_password_file": str(path)}, environment={})


def test_a_file_that_cannot_be_used_is_logged_once_and_keeps_the_password(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept: list[str] = []

    async def keep(password: str) -> None:
        kept.append(password)

    async def scenario() -> None:
        file = PasswordFile(path, keep)
        for content in ("one", "", "", "two"):
            await asyncio.to_thread(path.write_text, content)
            await file.look()

    asyncio.run(scenario())

    assert kept == ["one", "two"]
    assert capsys.readouterr().out.count("the password file cannot be used") == 1


def test_a_change_that_fails_is_tried_again_at_the_next_look(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_text("one")
    attempts = 0

    async def keep(_: str) -> None:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise StorageError(Thing("file", "users.json"), "could not be written", "free some space")

    async def scenario() -> None:
        file = PasswordFile(path, keep)
        for _ in range(3):
            await file.look()

    asyncio.run(scenario())

    assert attempts == 3
    assert capsys.readouterr().out.count("could not be written") == 1
