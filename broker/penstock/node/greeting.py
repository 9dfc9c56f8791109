"""The text that a broker prints once it is ready.

It has the addresses, the data directory, and a command to paste that publishes a message and gets it back. It is for
people; machines read the log and /health.
"""

import os
import sys
from pathlib import Path

from penstock.node.config import Settings
from penstock.node.state import BrokerState
from penstock.services.ports import Node

_WILDCARDS = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}


def greeting(
    settings: Settings, state: BrokerState, *, has_default_user: bool, password_file: Path | None = None
) -> str:
    """Return a few lines, the last one to paste."""
    node: Node = state
    now = node.state()
    lines = [f"Penstock {now.version} is ready after {now.uptime_seconds:.2f} s", ""]
    grpc, metrics = now.listeners.get("grpc", "off"), now.listeners.get("metrics", "off")
    lines.append(f"  gRPC     {grpc}")
    web = "https" if settings.tls_certificate is not None and settings.metrics_tls else "http"
    lines.append(
        f"  metrics  {'off' if metrics == 'off' else f'{web}://{_reachable(metrics)}/metrics and /health/ready'}"
    )
    lines.append(f"  data     {now.data_dir}")
    if password_file is not None:
        lines.append(
            f"  user     admin; its random password is in {password_file}. Delete that file after the first log-in."
        )
    else:
        lines.append(f"  user     {_user(settings) if has_default_user else 'see users.json'}")
    lines += ["", *_to_paste(settings, grpc, has_default_user=has_default_user), ""]
    return "\n".join(lines)


def _user(settings: Settings) -> str:
    name = settings.default_user
    if name != "guest":
        return name
    is_usual = settings.default_password_file is None and settings.default_password.get_secret_value() == "guest"
    shown = " with password guest" if is_usual else ""
    return f"guest{shown}, from this machine only"


def _to_paste(settings: Settings, grpc: str, *, has_default_user: bool) -> list[str]:
    if grpc == "off":
        return []
    command = _command()
    is_default = has_default_user and settings.default_user == "guest" and _user(settings).count("guest") > 1
    credentials = "guest:guest" if is_default else "USER:PASSWORD"
    is_usual = credentials == "guest:guest" and _reachable(grpc) == "127.0.0.1:5680"
    uri = "" if is_usual else f" --uri penstock://{credentials}@{_reachable(grpc)}/"
    if settings.tls_certificate is not None:
        uri = f" --uri 'penstocks://{credentials}@{_reachable(grpc)}/?ca=CA_FILE'"
    steps = ("queue declare hello", "publish 'Hello, Penstock!' -r hello", "consume hello -n 1")
    return [
        "Paste this to publish a message and to get it back:",
        "",
        " && ".join(f"{command} {step}{uri}" for step in steps),
    ]


def _reachable(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f"{_WILDCARDS.get(host, host)}:{port}"


def _command() -> str:
    """Return the program as it was called, if it is `penstock`, so that the line works in the same shell."""
    called = Path(sys.argv[0])
    if called.name != "penstock":
        return "penstock"
    try:
        shown = os.path.relpath(called)
    except ValueError:
        return str(called)
    return shown if os.sep in shown and not shown.startswith(os.pardir) else str(called)
