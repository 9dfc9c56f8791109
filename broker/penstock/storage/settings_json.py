"""`settings.json` of a vhost: one object with the default type of its queues.

A missing file is one without settings. This module does not know what a type is.
"""

from pathlib import Path
from typing import Final

from penstock.model.errors import StorageError, Thing
from penstock.storage.jsonfiles import json_content, read_json, write_file

SETTINGS: Final = "settings.json"
_DEFAULT_QUEUE_TYPE: Final = "default_queue_type"


def read_settings_file(path: Path) -> str | None:
    """Return the default type; None when there is none. Raises StorageError."""
    try:
        value = read_json(path)
    except FileNotFoundError:
        return None
    if not isinstance(value, dict) or not value.keys() <= {_DEFAULT_QUEUE_TYPE}:
        raise StorageError(
            Thing("file", str(path)), f"must hold an object with '{_DEFAULT_QUEUE_TYPE}' alone", "correct it"
        )
    found = value.get(_DEFAULT_QUEUE_TYPE)
    if found is not None and not isinstance(found, str):
        raise StorageError(
            Thing("file", str(path)), f"has a '{_DEFAULT_QUEUE_TYPE}' that is not a string", "correct it"
        )
    return found


def write_settings_file(path: Path, default_queue_type: str) -> None:
    write_file(path, settings_content(default_queue_type))


def settings_content(default_queue_type: str) -> bytes:
    """Return the content of a file."""
    return json_content({_DEFAULT_QUEUE_TYPE: default_queue_type})
