"""`user_limits.json` of a data directory: an object of users, each an object of numbers.

This module does not know what they limit.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.model.errors import StorageError, Thing
from penstock.storage.jsonfiles import read_json, write_json

USER_LIMITS: Final = "user_limits.json"


def read_user_limits_file(path: Path) -> dict[str, dict[str, object]]:
    """Return the limits; a missing file has none. Raises StorageError."""
    try:
        value = read_json(path)
    except FileNotFoundError:
        return {}
    if not isinstance(value, dict) or not all(isinstance(limits, dict) for limits in value.values()):
        raise StorageError(Thing("file", str(path)), "must hold an object of objects", "correct it, then start again")
    return value


def write_user_limits_file(path: Path, limits: Mapping[str, Mapping[str, int]]) -> None:
    write_json(path, limits)
