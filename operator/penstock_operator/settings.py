"""The operator's own settings, from the environment. An invalid value stops the start with its name."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

PREFIX = "PENSTOCK_OPERATOR_"


class SettingsError(Exception):
    """An invalid setting; the text names the variable and its valid values."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings; empty `namespaces` means all, and an empty `release` that no Lease is held."""

    namespaces: tuple[str, ...] = ()
    workers: int = 8
    resync_seconds: float = 300.0
    http_port: int = 8080
    log_level: str = "info"
    namespace: str = ""
    release: str = ""
    pod: str = ""
    allow_connection_secrets: bool = False


def load_settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """Load the settings. Raises SettingsError."""
    namespaces = tuple(name.strip() for name in _text(environment, "NAMESPACES", "").split(",") if name.strip())
    level = _text(environment, "LOG_LEVEL", "info")
    if level not in {"debug", "info", "warning", "error"}:
        raise SettingsError(f"{PREFIX}LOG_LEVEL is {level!r}; it must be debug, info, warning or error")
    return Settings(
        namespaces,
        int(_number(environment, "WORKERS", 8, 1, 64)),
        _number(environment, "RESYNC_SECONDS", 300, 1, 86_400),
        int(_number(environment, "HTTP_PORT", 8080, 0, 65_535)),
        level,
        _text(environment, "NAMESPACE", ""),
        _text(environment, "RELEASE", ""),
        _text(environment, "POD", ""),
        _truth(environment, "ALLOW_CONNECTION_SECRETS"),
    )


def _text(environment: Mapping[str, str], name: str, default: str) -> str:
    return environment.get(PREFIX + name, default)


def _truth(environment: Mapping[str, str], name: str) -> bool:
    text = _text(environment, name, "false")
    if text not in {"true", "false"}:
        raise SettingsError(f"{PREFIX}{name} is {text!r}; it must be true or false")
    return text == "true"


def _number(environment: Mapping[str, str], name: str, default: float, low: float, high: float) -> float:
    text = _text(environment, name, str(default))
    try:
        value = float(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise SettingsError(f"{PREFIX}{name} is {text!r}; it must be a number from {low:g} to {high:g}")
    return value
