"""The help of every command: short, in the imperative, and complete."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from penstock.cli.main import app

HELP_MAX = 60
OLD_STYLE = re.compile(
    r"\b(none that|those that|that is there|is there|what it|who may|gone|nobody|gives)\b", re.IGNORECASE
)


def commands(command: Any, *names: str) -> Iterator[tuple[str, Any]]:
    yield " ".join(names), command
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, *names, name)


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_a_short_help_in_the_imperative(name: str) -> None:
    text = (COMMANDS[name].help or "").split("\n\n")[0].replace("\n", " ")

    assert text.endswith(".")
    assert len(text) <= HELP_MAX, text
    assert not text.split()[0].endswith("s"), text
    assert not OLD_STYLE.search(COMMANDS[name].help), text


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_and_argument_has_a_short_help(name: str) -> None:
    for param in COMMANDS[name].params:
        text = getattr(param, "help", None) or ""
        if param.name in ("install_completion", "show_completion"):
            continue
        assert text, f"{name} {param.name}"
        assert len(text) <= HELP_MAX, f"{name} {param.name}: {text}"
        assert not OLD_STYLE.search(text), f"{name} {param.name}: {text}"


def test_a_command_that_connects_has_every_option_for_the_password() -> None:
    """`penstock backup download` lacked them: its pod has the password in a file."""
    options = {name: {each for param in command.params for each in param.opts} for name, command in COMMANDS.items()}
    lacking = {name: {"--password-file", "--ask-password", "--context"} - found for name, found in options.items()}

    # `perf amqp` measures any AMQP broker, whose URI has the password.
    del lacking["perf amqp"]
    assert [name for name in lacking if "--uri" in options[name] and lacking[name]] == []
    assert "--password-file" in options["backup download"]


def test_no_command_is_hidden_under_another_name() -> None:
    assert [name for name, command in COMMANDS.items() if command.hidden] == []


@pytest.mark.parametrize("arguments", [("queue", "list", "-h"), ("help", "queue", "list"), ("queue", "list", "--help")])
def test_help_is_asked_for_in_every_usual_way(arguments: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, arguments)

    assert (shown.exit_code, "List queues." in shown.stdout) == (0, True)
    assert "Usage: penstock queue list" in shown.stdout or arguments[0] != "help"


def test_help_of_a_command_that_does_not_exist_says_so() -> None:
    shown = CliRunner().invoke(app, ["help", "queue", "burn"])

    assert (shown.exit_code, shown.stderr) == (1, "penstock: no command 'queue burn'; see `penstock help`\n")


def test_one_name_is_used_for_one_thing() -> None:
    every = {option for command in COMMANDS.values() for param in command.params for option in param.opts}

    assert {option for option in every if option.startswith("--max-")} == {
        *("--max-age", "--max-bytes", "--max-length", "--max-priority")
    }
    assert "--json" not in every
    assert not [name for name in COMMANDS if re.search(r"\b(clear|forget)", name)]
