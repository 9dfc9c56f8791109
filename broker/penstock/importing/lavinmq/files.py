"""Opens files in a LavinMQ data directory.

The directory itself may be named by a symbolic link. Below it no link is followed, even one that appears meanwhile:
every step is opened from the step before. Only regular files are read, and none that is longer than files of its kind
can be.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.model.errors import PreconditionFailedError, StorageError, Thing
from penstock.storage.jsonfiles import parse_json

JSON_BYTES_MAX: Final = 64 * 1024 * 1024
CHUNK_BYTES: Final = 256 * 1024
_STEP: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Without O_NONBLOCK opening a named pipe would wait for a writer.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A regular file, read by position and never beyond the size that it had when it was opened."""

    path: Path
    descriptor: int
    size: int

    def read_at(self, position: int, count: int) -> bytes:
        """Return the bytes at a position: fewer only where the file has become shorter."""
        parts: list[bytes] = []
        while count:
            part = os.pread(self.descriptor, count, position)
            if not part:
                break
            parts.append(part)
            position += len(part)
            count -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def next_data(self, position: int) -> int:
        """Return the next byte that is not in a hole of a sparse file; the size when there is none."""
        try:
            return os.lseek(self.descriptor, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return self.size


@dataclass(frozen=True, slots=True)
class Folder:
    """A directory: `root`, which the user named, or one below it."""

    root: Path
    parts: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        return self.root.joinpath(*self.parts)

    def folder(self, name: str) -> "Folder":
        return Folder(self.root, (*self.parts, name))

    def exists(self) -> bool:
        try:
            with self._opened():
                return True
        except FileNotFoundError:
            return False

    def folders(self) -> list[str]:
        """Return the names of the directories in it, sorted. Raises FileNotFoundError, as `files` does."""
        return [name for name, is_directory in self._entries() if is_directory]

    def files(self, prefix: str = "") -> list[str]:
        return [name for name, is_directory in self._entries() if not is_directory and name.startswith(prefix)]

    def disk_bytes(self, name: str) -> int:
        """Return a file's size on the disk; a sparse file takes less than its size."""
        with self._opened() as directory:
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        return min(status.st_size, status.st_blocks * 512)

    @contextmanager
    def file(self, name: str, bytes_max: int) -> Iterator[OpenFile]:
        """Open a file.

        Raises FileNotFoundError, StorageError for one that is too long, PreconditionFailedError for one that is not
        regular.
        """
        path = self.path / name
        with self._opened() as directory:
            try:
                descriptor = os.open(name, _FILE, dir_fd=directory)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise _unreadable(path, error) from error
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise _irregular(path)
            if status.st_size > bytes_max:
                rule = f"holds {status.st_size:,} bytes, and at most {bytes_max:,} are read"
                raise StorageError(Thing("file", str(path)), rule, "restore the right file")
            yield OpenFile(path, descriptor, status.st_size)
        finally:
            os.close(descriptor)

    def read(self, name: str, bytes_max: int) -> bytes:
        with self.file(name, bytes_max) as file:
            return file.read_at(0, file.size)

    def read_json(self, name: str) -> object:
        return parse_json(self.read(name, JSON_BYTES_MAX), self.path / name)

    def _entries(self) -> list[tuple[str, bool]]:
        with self._opened() as directory, os.scandir(directory) as found:
            entries = [(entry.name, entry.is_dir(follow_symlinks=False), entry.is_symlink()) for entry in found]
        for name, _, is_link in entries:
            if is_link:
                raise _link(self.path / name)
        return sorted((name, is_directory) for name, is_directory, _ in entries)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        at = self.root
        descriptor = os.open(at, _STEP)
        try:
            for part in self.parts:
                at /= part
                descriptor = _step(descriptor, part, at)
            yield descriptor
        finally:
            os.close(descriptor)


def _step(directory: int, name: str, path: Path) -> int:
    """Open a directory in another one, whose descriptor is closed when that succeeds."""
    try:
        below = os.open(name, _STEP | os.O_NOFOLLOW, dir_fd=directory)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unreadable(path, error) from error
    os.close(directory)
    return below


def _unreadable(path: Path, error: OSError) -> PreconditionFailedError | StorageError:
    if path.is_symlink():
        return _link(path)
    if error.errno in {errno.ENOTDIR, errno.ELOOP, errno.ENXIO}:
        return _irregular(path)
    return StorageError(Thing("file", str(path)), f"cannot be read: {error.strerror}", "make it readable for this user")


def _link(path: Path) -> PreconditionFailedError:
    return PreconditionFailedError(
        Thing("file", str(path)),
        "is a symbolic link, and imports do not follow links",
        "replace it by the file or directory",
    )


def _irregular(path: Path) -> PreconditionFailedError:
    return PreconditionFailedError(
        Thing("file", str(path)), "is not a regular file or directory, as LavinMQ has there", "remove it"
    )
