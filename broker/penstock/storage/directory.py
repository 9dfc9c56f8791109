"""The data directory: who may use it, what lies where, and how the last run ended. One process at a time holds the
lock; `clean` exists only between a clean stop and the next start. It does not know what is in the logs."""

import fcntl
import hashlib
import os
import re
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.model.errors import StorageError, Thing
from penstock.storage.jsonfiles import read_json, sync_directory, write_file, write_json
from penstock.storage.user_limits_json import USER_LIMITS

BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
_DATA_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class LastRun:
    """What the directory tells of the run before this one."""

    is_new: bool
    was_clean: bool
    same_boot: bool


class DataDirectory:
    """Holds the lock from `open` to `close`; every path below the directory is made here."""

    def __init__(self, path: Path, lock: int, last_run: LastRun, data_id: str) -> None:
        self.path = path
        self.last_run = last_run
        self.data_id = data_id
        """Made once, with the directory: another one means that this is another directory, whatever it is called."""
        self._lock: int | None = lock

    @classmethod
    def open(cls, path: Path, boot_id_file: Path = BOOT_ID_FILE) -> "DataDirectory":
        """Makes the directory if need be and takes its lock. Raises StorageError when another process has it."""
        path = path.absolute()
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o750)
            lock = _locked(path / ".lock")
        except OSError as error:
            raise StorageError(
                Thing("data directory", str(path)),
                f"cannot be used: {error.strerror}",
                "make it writable for the broker's user or name another one with --data-dir",
            ) from error
        try:
            return cls(path, lock, *_begin(path, _boot_id(boot_id_file)))
        except BaseException:
            os.close(lock)
            raise

    @property
    def users_file(self) -> Path:
        return self.path / "users.json"

    @property
    def user_limits_file(self) -> Path:
        return self.path / USER_LIMITS

    @property
    def vhosts_file(self) -> Path:
        return self.path / "vhosts.json"

    def vhost_directory(self, name: str) -> Path:
        """Where a vhost lives: a digest, because a vhost's name may hold what a path cannot."""
        return self.path / directory_name(name)

    @property
    def may_have_lost_page_cache(self) -> bool:
        """Whether what was written and not synced may be gone: the machine went down under the broker."""
        return not (self.last_run.is_new or self.last_run.was_clean or self.last_run.same_boot)

    def check_whole(self) -> None:
        """A file that is missing beside others is an accident, not a new broker. Raises StorageError."""
        has_vhosts = self.vhosts_file.exists()
        has_data = any((entry / "definitions.amqp").exists() for entry in self.path.iterdir() if len(entry.name) == 40)
        if has_data and not has_vhosts:
            raise _missing(self.vhosts_file)
        if has_vhosts and not self.users_file.exists():
            raise _missing(self.users_file)

    def mark_clean(self) -> None:
        """The last step of a stop: everything is on the disk, so the next start need not doubt it."""
        write_file(self.path / "clean", b"")

    def close(self) -> None:
        """Gives the lock back."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Keeps brokers away from a data directory, and is kept away by one that uses it: raises StorageError. A directory
    without a lock was never a broker's."""
    if not (path / ".lock").exists():
        yield
        return
    lock = _locked(path / ".lock")
    try:
        yield
    finally:
        os.close(lock)


@contextmanager
def share_lock(path: Path) -> Iterator[None]:
    """Keeps brokers away from a data directory that is only read: raises StorageError when one uses it. A directory
    without a lock was never a broker's."""
    try:
        lock = os.open(path / ".lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        yield
        return
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _in_use(path, lock, "stop that one first, or read a restored backup") from error
        yield
    finally:
        os.close(lock)


def _in_use(path: Path, lock: int, fix: str) -> StorageError:
    holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
    return StorageError(
        Thing("data directory", str(path)), f"is in use by another broker (process {holder} holds its .lock)", fix
    )


def _missing(path: Path) -> StorageError:
    return StorageError(
        Thing("file", str(path)),
        "is missing, but what it describes is there",
        "put it back, or name an empty directory",
    )


def directory_name(vhost: str) -> str:
    """The name of a vhost's directory."""
    return hashlib.sha1(vhost.encode(), usedforsecurity=False).hexdigest()


def _locked(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StorageError(Thing("lock", str(path)), "is not a file", "remove it")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        refusal = _in_use(path.parent, descriptor, "stop that one first or name another directory with --data-dir")
        os.close(descriptor)
        raise refusal from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)  # for the message above only: the lock is the kernel's
    return descriptor


def _begin(path: Path, boot_id: str) -> tuple[LastRun, str]:
    node_file, clean_file = path / "node.json", path / "clean"
    try:
        before = read_json(node_file)
    except FileNotFoundError:
        before = None
    known = before if isinstance(before, dict) else {}
    last_boot_id, data_id = known.get("boot_id"), known.get("data_id")
    if not isinstance(data_id, str) or _DATA_ID.fullmatch(data_id) is None:
        data_id = str(uuid.uuid4())  # new, restored from a backup, or of a version that gave none
    last_run = LastRun(before is None, clean_file.exists(), last_boot_id == boot_id and boot_id != "")
    if last_run.was_clean:
        clean_file.unlink()
        sync_directory(path)  # from here on a power loss must not find `clean`
    write_json(node_file, {"format": 1, "boot_id": boot_id, "data_id": data_id})
    return last_run, data_id


def _boot_id(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""  # an unknown boot counts as another one: the careful choice
