"""The command line's entry point.

It has a module per noun, and one place where errors become a line on stderr and an exit status.

Starting must be quick: nothing here imports the client or the broker before a command asks for it.
"""

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from penstock.cli import (
    backup,
    bindings,
    cluster,
    config,
    connections,
    contexts,
    definitions,
    exchanges,
    imports,
    log,
    messages,
    perf,
    permissions,
    pipeline,
    policies,
    queues,
    restore,
    serve,
    status,
    streams,
    users,
    vhosts,
)
from penstock.cli.group import Commands
from penstock.cli.output import visible
from penstock.cli.standard_streams import open_closed_streams

__all__ = ["app"]

FAILED = 1
BROKEN_PIPE = 141
"""As a shell reports a program that SIGPIPE ended: whoever read the output has left."""


class CommandGroup(TyperGroup):
    """Report an error in one line. An unexpected one keeps its traceback."""

    def main(self, *args: Any, **options: Any) -> Any:
        open_closed_streams()
        return super().main(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            # Typer passes on the text of the library that checks a value.
            error.message = error.message.removeprefix("Value error, ")
            raise
        except KeyboardInterrupt:
            sys.stderr.write("interrupted\n")
            raise typer.Exit(messages.INTERRUPTED) from None
        except BrokenPipeError as error:
            # Otherwise Python reports an error when it flushes standard output at the end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(BROKEN_PIPE) from error
        except _expected() as error:
            # Of settings each problem has a line.
            texts = str(error).splitlines() if type(error).__name__ == "ConfigurationError" else [_told(error)]
            for text in texts:
                sys.stderr.write(f"penstock: {visible(' '.join(text.split())) or type(error).__name__}\n")
            raise typer.Exit(FAILED) from error


app = Commands(
    cls=CommandGroup,
    name="penstock",
    help="Run and use a Penstock message broker.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"penstock {_version()}")
        raise typer.Exit


@app.callback()
def start(
    is_version_wanted: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Run and use a Penstock message broker."""


@app.command("help")
def show_help(
    context: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(help="A command, such as: queue list.", show_default=False)
    ] = None,
) -> None:
    """Show the help of a command."""
    found: Any = context.find_root()
    for word in words or []:
        group = found.command
        command = group.get_command(found, word) if isinstance(group, TyperGroup) else None
        if command is None:
            raise ValueError(f"no command '{' '.join(words or [])}'; see `penstock help`")
        found = typer.Context(command, info_name=word, parent=found)
    typer.echo(found.get_help())


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("penstock")
    except PackageNotFoundError:
        return "unknown (run from a source tree that is not installed)"


def _told(error: BaseException) -> str:
    """Return an error's text; of the system's errors the words, with the name of a file that cannot be used."""
    if isinstance(error, OSError) and error.strerror:
        reason = error.strerror.lower()
        return reason if error.filename is None else f"cannot use '{error.filename}': {reason}"
    return str(error)


def _expected() -> tuple[type[BaseException], ...]:
    """Return the errors that are not bugs. They are imported only after an error."""
    from penstock.client.errors import PenstockError

    found: list[type[BaseException]] = [PenstockError, OSError, ValueError]
    # The broker's own packages are only imported if the command needs them.
    for module, name in (
        ("penstock.node", "ConfigurationError"),
        ("penstock.node", "StartError"),
        ("penstock.model.errors", "FaultError"),
        ("penstock.model.errors", "RefusedError"),
    ):
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None:
            found.append(kind)
    return tuple(found)


app.command("serve")(serve.serve)
app.command("publish")(messages.publish)
app.command("consume")(messages.consume)
app.command("get")(messages.get)
app.command("status")(status.status)
app.command("restore")(restore.restore)
app.add_typer(backup.app, name="backup")
app.add_typer(cluster.app, name="cluster")
app.add_typer(config.app, name="config")
app.add_typer(contexts.app, name="context")
app.add_typer(connections.connections, name="connection")
app.add_typer(connections.consumers, name="consumer")
app.add_typer(queues.app, name="queue")
app.add_typer(streams.app, name="stream")
app.add_typer(exchanges.app, name="exchange")
app.add_typer(bindings.app, name="binding")
app.add_typer(vhosts.app, name="vhost")
app.add_typer(users.app, name="user")
app.add_typer(permissions.app, name="permission")
app.add_typer(policies.app, name="policy")
app.add_typer(definitions.app, name="definitions")
app.add_typer(imports.app, name="import")
app.add_typer(log.app, name="log")
app.add_typer(perf.app, name="perf")
app.add_typer(pipeline.app, name="pipeline")
