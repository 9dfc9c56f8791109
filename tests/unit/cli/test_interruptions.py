"""Commands that Ctrl-C ends, and prompts without a terminal: what they print and their exit status."""

from collections.abc import Callable, Iterator
from getpass import GetPassWarning
from typing import Any
from warnings import warn

import pytest
import typer
from typer.testing import CliRunner, Result

from penstock.cli.main import app
from penstock.client.sync import Connection
from support.fake_transport import FakeBroker, FakeTransport, connect_to

Invoke = Callable[..., Result]


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


@pytest.fixture
def invoke(broker: FakeBroker) -> Invoke:
    """Return a function that runs a command, with a new transport each time."""

    def connect(uri: str, **options: Any) -> Connection:
        return connect_to(FakeTransport(broker))

    def run(*arguments: str, stdin: str | bytes = "") -> Result:
        return CliRunner().invoke(app, list(arguments), input=stdin, obj=connect)

    return run


@pytest.mark.parametrize("command", [("consume", "jobs"), ("stream", "read", "jobs")])
def test_a_command_that_is_interrupted_says_so_in_its_status(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    invoke("queue", "declare", "jobs")
    monkeypatch.setattr("penstock.cli.messages._print_messages", interrupted)
    monkeypatch.setattr("penstock.client.stream.StreamReader.__enter__", interrupted)

    result = invoke(*command)

    assert (result.exit_code, result.stderr.splitlines()[-1]) == (130, "interrupted")


def test_an_interrupted_publish_says_how_much_is_confirmed(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    def two_and_an_interruption(*_: object) -> Iterator[list[bytes]]:
        yield [b"one", b"two"]
        raise KeyboardInterrupt

    invoke("queue", "declare", "jobs")
    monkeypatch.setattr("penstock.cli.messages.chunks", two_and_an_interruption)

    result = invoke("publish", "-r", "jobs")

    assert (result.exit_code, result.stderr) == (130, "interrupted; 2 published and confirmed\n")


def test_any_command_that_is_interrupted_says_so(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock.cli.status.connected", interrupted)

    result = invoke("status")

    assert (result.exit_code, result.stderr) == (130, "interrupted\n")


def test_a_password_that_nothing_can_ask_for_is_wrong_use(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_terminal(*_: object, **__: object) -> None:
        warn("Can not control echo on the terminal.", GetPassWarning, stacklevel=1)

    monkeypatch.setattr("penstock.cli.options.typer.prompt", no_terminal)

    result = invoke("user", "add", "anna")

    assert (result.exit_code, "--password-stdin" in result.stderr) == (2, True)


def test_no_prompt_is_printed_where_nothing_can_be_typed(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.options.has_terminal", lambda: False)

    result = invoke("user", "add", "anna", stdin="secret\nsecret\n")

    assert (result.exit_code, "Password:" in result.output) == (2, False)


def test_an_interrupted_prompt_has_the_status_of_an_interruption(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise typer.Abort

    monkeypatch.setattr("penstock.cli.options.typer.prompt", interrupted)

    assert invoke("user", "add", "anna").exit_code == 130
