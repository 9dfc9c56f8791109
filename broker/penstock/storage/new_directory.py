"""Makes a directory that is whole or absent.

A backup's directory is claimed when it is empty, filled, synced, and emptied again when filling it failed. A data
directory is filled in a folder within it, and what is in the folder is moved up when it is complete, the file that
decides last: a process that dies between leaves the folder, whose name says what was under way. By it a start is
refused, and the next attempt knows that it may clear what was moved. This module does not know the content.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.model.errors import PreconditionFailedError, StorageError, Thing
from penstock.storage.jsonfiles import sync_directory


@dataclass(frozen=True, slots=True)
class Filling:
    """Work that fills a data directory, and its folder there.

    A directory with the folder, and without the file that decides, is unfinished.
    """

    folder: str
    name: str
    command: str


RESTORE: Final = Filling(".restoring", "a restore", "penstock restore")
IMPORT: Final = Filling(".importing", "an import", "penstock import lavinmq")
_FILLINGS: Final = (RESTORE, IMPORT)
_OF_THE_DISK: Final = "lost+found"
"""Is in the root of a new file system."""


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


@contextmanager
def filled_directory(target: Path, filling: Filling, last: str, is_known: Callable[[str], bool]) -> Iterator[Path]:
    """Yield a folder to fill; what is in it is moved to the directory when the block ends, the file `last` last.

    `is_known` says which names a fill may have moved: files that an unfinished one left, of any kind, are removed.
    Raises PreconditionFailedError when the directory holds something else, and StorageError when the disk fails or
    another process fills it.
    """
    was_there = target.exists()
    try:
        target.mkdir(mode=0o750, exist_ok=True)
        with _alone(target):
            unfinished = target / filling.folder
            _clear(target, last, is_known)
            unfinished.mkdir(mode=0o700, exist_ok=True)
            sync_directory(target)
            try:
                yield unfinished
                _move_up(unfinished, target, last)
            except BaseException:
                if not (target / last).exists():
                    _remove_moved(target, is_known)
                    shutil.rmtree(unfinished, ignore_errors=True)
                    if not was_there:
                        with contextlib.suppress(OSError):
                            target.rmdir()
                raise
    except (OSError, shutil.Error) as error:
        raise _failed(target, error) from error


def unfinished_filling(target: Path, last: str) -> Filling | None:
    """Return what has begun to fill this directory and was not completed."""
    if (target / last).exists():
        return None
    return next((filling for filling in _FILLINGS if (target / filling.folder).exists()), None)


def remove_emptied(target: Path) -> None:
    """Remove the folder that a fill left which was killed after its last file was in place."""
    for filling in _FILLINGS:
        with contextlib.suppress(OSError):
            (target / filling.folder).rmdir()


def sync_all(folder: Path) -> None:
    """Sync everything below a folder."""
    for path in (folder, *folder.rglob("*")):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Keep another process from filling the directory. The kernel drops the lock with the process."""
    descriptor = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StorageError(
                Thing("directory", str(target)), "is being filled by another process", "wait until that has ended"
            ) from error
        yield
    finally:
        os.close(descriptor)


def _clear(target: Path, last: str, is_known: Callable[[str], bool]) -> None:
    """Check that the directory is empty but for what an unfinished fill left, and remove that."""
    is_again = unfinished_filling(target, last) is not None
    folders = {filling.folder for filling in _FILLINGS}
    for path in target.iterdir():
        is_left = is_again and (path.name in folders or is_known(path.name))
        if not is_left and path.name != _OF_THE_DISK:
            raise _not_empty(target)
    if is_again:
        _remove_moved(target, is_known)
        for folder in folders:
            if (target / folder).exists():
                shutil.rmtree(target / folder)


def _move_up(unfinished: Path, target: Path, last: str) -> None:
    sync_all(unfinished)
    for path in sorted(unfinished.iterdir()):
        if path.name != last:
            path.rename(target / path.name)
    sync_directory(target)
    (unfinished / last).rename(target / last)
    sync_directory(target)
    sync_directory(target.parent)
    unfinished.rmdir()


def _remove_moved(target: Path, is_known: Callable[[str], bool]) -> None:
    for path in target.iterdir():
        if is_known(path.name):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def _claim(target: Path) -> bool:
    """Make the directory, or check that it is empty; return whether it existed."""
    try:
        target.mkdir(mode=0o750)
    except FileExistsError:
        if not target.is_dir() or any(target.iterdir()):
            raise _not_empty(target) from None
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


def _not_empty(target: Path) -> PreconditionFailedError:
    return PreconditionFailedError(Thing("directory", str(target)), "is not empty", "name an empty or a new directory")


def _failed(target: Path, error: OSError) -> StorageError:
    place = f"'{error.filename}' in it: " if error.filename and str(error.filename) != str(target) else ""
    return StorageError(
        Thing("directory", str(target)),
        f"could not be written: {place}{error.strerror or error}",
        "make it writable for the broker's user, free space, and empty it",
    )
