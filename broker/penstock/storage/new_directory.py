"""Makes a directory that is whole or not there: claimed when it is empty, filled, synced, and emptied again when
filling it failed. It does not know what goes into it."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.model.errors import PreconditionFailedError, StorageError, Thing


@contextmanager
def new_directory(target: Path) -> Iterator[None]:
    """Raises PreconditionFailedError when the directory holds something, and StorageError for what the disk refuses."""
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
    """Puts everything below it on the disk."""
    for path in (folder, *folder.rglob("*")):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _claim(target: Path) -> bool:
    """Makes the directory, or sees that it is empty; says whether it was there."""
    try:
        target.mkdir(mode=0o750)
    except FileExistsError:
        if not target.is_dir() or any(target.iterdir()):
            raise PreconditionFailedError(
                Thing("directory", str(target)), "holds something already", "name an empty or a new one"
            ) from None
        return True
    except OSError as error:
        raise _failed(target, error) from error
    return False


def _discard(target: Path, *, keep: bool) -> None:
    # A disk that refused to take it may refuse this too; the first error is the one to report.
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
