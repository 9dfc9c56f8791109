"""`limits.json` of a vhost, in LavinMQ's format, and `user_limits.json` of a data directory.

The former is one object of numbers, the latter an object of users with such an object each. This module does not know
what they limit.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from penstock.model.errors import StorageError, Thing
from penstock.storage.jsonfiles import read_json, write_json

LIMITS: Final = "limits.json"
USER_LIMITS: Final = "user_limits.json"


def read_limits_file(path: Path) -> dict[str, object]:
    """Return the limits; a missing file has none. Raises StorageError."""
    return _read(path)


def read_user_limits_file(path: Path) -> dict[str, dict[str, object]]:
    """Return the limits by user; a missing file has none. Raises StorageError."""
    value = _read(path)
    if not all(isinstance(limits, dict) for limits in value.values()):
        raise StorageError(Thing("file", str(path)), "must hold an object of objects", "correct it, then start again")
    return value


def write_limits_file(path: Path, limits: Mapping[str, int | Mapping[str, int]]) -> None:
    write_json(path, limits)


def _read(path: Path) -> dict[str, Any]:
    try:
        value = read_json(path)
    except FileNotFoundError:
        return {}
    if not isinstance(value, dict):
        raise StorageError(Thing("file", str(path)), "must hold an object", "correct it, then start again")
    return value
