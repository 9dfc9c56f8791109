"""The audit log: log-ins, and verbs that change something, successful or refused.

An entry has the user, address, connection and subject. Each verb names the fields that are logged, so that no password
or token is logged with a new one. A subject is cut at 4,096 characters.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum, StrEnum
from typing import Any, Final

from penstock.kit.logging import logger
from penstock.services.principal import Principal

SUBJECT_CHARACTERS_MAX: Final = 4_096
_log = logger("audit")


class Outcome(StrEnum):
    """The outcome of a verb. FAILED is a bug, or a stop of the broker during the verb; a change may have been made."""

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


def log_in(principal: Principal) -> None:
    """Log that a user was authenticated on a connection for the first time."""
    connection = principal.connection
    _log.info("LogIn", outcome="done", user=principal.name, peer=connection.peer, connection=int(connection.id))


def own(event: str, *, user: str, change: str) -> None:
    """Log a change of a user that the broker makes by itself, as its configuration says."""
    _log.info(event, outcome=Outcome.DONE.value, user=user, about={"change": change})


def report(event: str, principal: Principal, about: Mapping[str, object], outcome: Outcome, refusal: str = "") -> None:
    """Log a verb with its outcome; a refusal says why it was not done."""
    connection = principal.connection
    told: dict[str, Any] = {
        "user": principal.name,
        "peer": connection.peer,
        "connection": int(connection.id),
        "about": _bounded({name: _plain(value) for name, value in about.items() if value is not None}),
    }
    if refusal:
        told["refusal"] = refusal
    _log.info(event, outcome=outcome.value, **told)


def _plain(value: object) -> Any:
    """Return the value as JSON has it; empty fields of a record are left out."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        named = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        return {name: item for name, item in named.items() if item not in ("", {}, None)}
    return str(value)


def _bounded(about: dict[str, Any]) -> dict[str, Any] | str:
    text = json.dumps(about, ensure_ascii=False)
    return about if len(text) <= SUBJECT_CHARACTERS_MAX else text[:SUBJECT_CHARACTERS_MAX]
