"""Makes a directory that is whole or absent.

It is claimed when it is empty, filled, synced, and emptied again when filling it failed. This module does not know the
content.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.model.errors import PreconditionFailedError, StorageError, Thing


@contextmanager
def new_directory(target: Path) -> Iterator[None]:
    """Claim a directory. Raises PreconditionFailedError when it is not empty, and StorageError when the disk fails."""
    was_there = _claim(target)
    try:
        yield
    except (OSError, shutil.Error) as error:
        _discard(target, keep=was_there)
        raise _failed(target, error) from error
    except BaseException:
        _discard(target, keep=was_there)
        raise


def sync_all(folder: Path) -> None:
    """Sync everything below a folder."""
    for path in (folder, *folder.rglob("*")):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _claim(target: Path) -> bool:
    """Make the directory, or check that it is empty; return whether it existed."""
    try:
        target.mkdir(mode=0o750)
    except FileExistsError:
        if not target.is_dir() or any(target.iterdir()):
            raise PreconditionFailedError(
                Thing("directory", str(target)), "is not empty", "name an empty or a new directory"
            ) from None
        return True
    except OSError as error:
        raise _failed(target, error) from error
    return False


def _discard(target: Path, *, keep: bool) -> None:
    # A disk that failed before may fail here too; the first error is the one to report.
    with contextlib.suppress(OSError):
        for path in target.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        if not keep:
            target.rmdir()


def _failed(target: Path, error: OSError) -> StorageError:
    return StorageError(
        Thing("directory", str(target)),
        f"could not be written: {error.strerror or error}",
        "make it writable for the broker's user, free space, and empty it",
    )
