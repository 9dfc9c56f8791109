"""`limits.json` of a vhost, in LavinMQ's format: one object of numbers. This module does not know what they limit."""

from pathlib import Path
from typing import Final

from penstock.model.errors import StorageError, Thing
from penstock.storage.jsonfiles import read_json, write_json

LIMITS: Final = "limits.json"


def read_limits_file(path: Path) -> dict[str, object]:
    """Return the limits; a missing file has none. Raises StorageError."""
    try:
        value = read_json(path)
    except FileNotFoundError:
        return {}
    if not isinstance(value, dict):
        raise StorageError(Thing("file", str(path)), "must hold an object", "correct it, then start again")
    return value


def write_limits_file(path: Path, limits: dict[str, int]) -> None:
    write_json(path, limits)
