"""The behaviour of a group of commands.

Without a command it prints its help; commands that connect to a broker have options for the broker and the password.
"""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from penstock.cli.context_file import complete_contexts

__all__ = ["BROKER_OPTIONS", "Commands"]

F = TypeVar("F", bound=Callable[..., Any])


class Commands(typer.Typer):
    """A group of commands."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"no_args_is_help": True, **options})

    def command(self, name: str | None = None, **options: Any) -> Callable[[F], F]:
        """Register a command. One with `--uri` gets the other options that say which broker."""
        register = super().command(name, **options)

        def keep(function: F) -> F:
            connects = {"context", "uri"} <= signature(function).parameters.keys()
            register(_with_broker(function) if connects else function)
            return function

        return keep


BROKER_OPTIONS = {
    "named": Annotated[
        str | None,
        typer.Option(
            "--context",
            help="Context to use; see `penstock context`.",
            metavar="NAME",
            autocompletion=complete_contexts,
        ),
    ],
    "password_file": Annotated[
        Path | None, typer.Option("--password-file", help="File whose first line is the password.", metavar="FILE")
    ],
    "asks_password": Annotated[bool, typer.Option("--ask-password", "-W", help="Ask for the password.")],
}
"""They are read from a command's `params`, and no command's function takes them."""


def _with_broker(function: F) -> F:
    """Return a command's function that takes the options of BROKER_OPTIONS, behind `--uri`, and ignores them."""

    @wraps(function)
    def run(**arguments: Any) -> Any:
        return function(**{name: value for name, value in arguments.items() if name not in BROKER_OPTIONS})

    own = list(signature(function).parameters.values())
    place = next(at for at, each in enumerate(own) if each.name == "uri") + 1
    added = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=False if name == "asks_password" else None, annotation=kind)
        for name, kind in BROKER_OPTIONS.items()
    ]
    every = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in [*own[:place], *added, *own[place:]]]
    run.__signature__ = signature(function).replace(parameters=every)  # type: ignore[attr-defined]
    run.__annotations__ = {**function.__annotations__, **BROKER_OPTIONS}
    return run  # type: ignore[return-value]
