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
    cluster: Annotated[str | None, typer.Option("--cluster", help="Name of the cluster; default: none")] = None,
    cluster_broker: Annotated[
        str | None, typer.Option("--cluster-broker", help="Name of this broker in the cluster.", metavar="NAME")
    ] = None,
    cluster_brokers: Annotated[
        str | None,
        typer.Option("--cluster-brokers", help="The cluster's brokers: NAME=HOST:PORT,...", metavar="BROKERS"),
    ] = None,
    cluster_coordinator: Annotated[
        str | None,
        typer.Option("--cluster-coordinator", help="etcd:URLS/PREFIX, kubernetes:CLUSTER or file:DIRECTORY"),
    ] = None,
    cluster_peers: Annotated[
        str | None,
        typer.Option(
            "--cluster-peers", help="HOST:PORT for other brokers; default: 127.0.0.1:5681", metavar="HOST:PORT"
        ),
    ] = None,
    cluster_secret_file: Annotated[
        Path | None, typer.Option("--cluster-secret-file", help="File with the cluster's secrets, one a line.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Validate settings and TLS files, and exit.")] = False,
) -> None:
    """Start a broker.

    Flags override PENSTOCK_* variables, and those override the file.
    """
    flags = {name: _plain(value) for name, value in locals().items() if name not in ("config", "check")}
    node = import_module("penstock.node")
    load = partial(node.load_settings, config, flags)
    settings = load()
    if check:
        node.check_tls(settings)
        typer.echo("the settings are valid")
        return
    node.run(settings, load if config is not None else None)


def _plain(value: object) -> object:
    return value.value if isinstance(value, StrEnum) else value
