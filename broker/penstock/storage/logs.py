"""Looks into the log of a stopped vhost, for people who want to know what is in it or whether it is whole."""

from pathlib import Path
from typing import Any

from penstock.model.errors import StorageError, Thing
from penstock.native import StorageError as NativeStorageError
from penstock.native import inspect_log


def inspect(directory: Path, *, verify: bool) -> list[dict[str, Any]]:
    """One entry a segment; with `verify` every byte of every record is checked. Raises StorageError."""
    try:
        return inspect_log(str(directory), verify=verify)
    except NativeStorageError as error:
        raise StorageError(
            Thing("log", str(directory)), f"cannot be read: {error}", "name the directory of a vhost"
        ) from error
