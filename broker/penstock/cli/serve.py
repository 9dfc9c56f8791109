"""`penstock serve`: starts a broker.

It is the only command that imports the broker's own process packages, and only when called.
"""

from enum import StrEnum
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["serve"]


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    AUTO = "auto"
    CONSOLE = "console"
    JSON = "json"


def serve(
    config: Annotated[Path | None, typer.Option("--config", help="A TOML file of settings.")] = None,
    data_dir: Annotated[Path | None, typer.Option("--data-dir", help="Data directory; default: ./data")] = None,
    grpc: Annotated[
        str | None, typer.Option("--grpc", help="HOST:PORT or off; default: 127.0.0.1:5680", metavar="HOST:PORT")
    ] = None,
    amqp: Annotated[
        str | None, typer.Option("--amqp", help="HOST:PORT or off; default: 127.0.0.1:5672", metavar="HOST:PORT")
    ] = None,
    amqp_ws: Annotated[
        str | None, typer.Option("--amqp-ws", help="HOST:PORT or off; default: off", metavar="HOST:PORT")
    ] = None,
    http: Annotated[
        str | None, typer.Option("--http", help="HOST:PORT or off; default: 127.0.0.1:15672", metavar="HOST:PORT")
    ] = None,
    metrics: Annotated[
        str | None, typer.Option("--metrics", help="HOST:PORT or off; default: 127.0.0.1:15692", metavar="HOST:PORT")
    ] = None,
    log_level: Annotated[LogLevel | None, typer.Option("--log-level", help="Minimum log level.")] = None,
    log_format: Annotated[
        LogFormat | None, typer.Option("--log-format", help="Format of log lines; default: auto")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Validate settings and TLS files, and exit.")] = False,
) -> None:
    """Start a broker.

    Flags override PENSTOCK_* variables, and those override the file.
    """
    node = import_module("penstock.node")
    flags = {
        "data_dir": data_dir,
        "grpc": grpc,
        "amqp": amqp,
        "amqp_ws": amqp_ws,
        "http": http,
        "metrics": metrics,
        "log_level": None if log_level is None else log_level.value,
        "log_format": None if log_format is None else log_format.value,
    }
    load = partial(node.load_settings, config, flags)
    settings = load()
    if check:
        node.check_tls(settings)
        typer.echo("the settings are valid")
        return
    node.run(settings, load if config is not None else None)
