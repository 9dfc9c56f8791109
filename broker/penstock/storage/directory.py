"""The data directory: its lock, its layout, and how the last run ended.

One process at a time holds the lock. Opening only reads: `clean` and the boot in `node.json` describe the last run
until `begin`, which a start calls when every log is open, so that a start that fails earlier loses no information. Only
the format in `node.json` is raised before: no log has a file of a newer format. This module does not know the content
of logs.
"""

import fcntl
import hashlib
import os
import re
import stat
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from penstock.model.errors import StorageError, Thing
from penstock.storage.cluster_json import CLUSTER
from penstock.storage.definitions_proof import PROOF
from penstock.storage.deletions_json import DELETIONS, Deletions
from penstock.storage.jsonfiles import read_json, sync_directory, write_file, write_json
from penstock.storage.limits_json import USER_LIMITS
from penstock.storage.new_directory import remove_emptied, unfinished_filling

BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
NODE = "node.json"
APPLIED = "meta.json"
"""The file that says, in a cluster, how far the others have the cluster's metadata."""
VHOSTS = "vhosts.json"
_USERS = "users.json"
_NOTHING: Final = {"policies.json": "[]", "operator_policies.json": "[]", "limits.json": "{}", "settings.json": "{}"}
"""A vhost's settings files, each with its empty content."""
FORMATS: Final = range(1, 3)
"""Formats that this version reads. `node.json` and backups state the newest one of their logs; others are refused."""
FORMAT: Final = FORMATS[-1]
"""The format of what is written."""
_DATA_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class LastRun:
    """State that the previous run left in the directory."""

    is_new: bool
    was_clean: bool
    same_boot: bool


class DataDirectory:
    """An open data directory, locked from `open` to `close`; all paths below it are made here."""

    def __init__(self, path: Path, lock: int, boot_id: str, node: "_Node | None") -> None:
        self.path = path
        self._lock: int | None = lock
        self._boot_id = boot_id
        self._files = node.files if node is not None else frozenset[str]()
        self._has_begun = False
        is_same_boot = node is not None and node.boot_id == boot_id and boot_id != ""
        is_new = node is None and not self.vhosts_file.exists()
        self.format = FORMAT if is_new else node.format if node is not None else FORMATS[0]
        self.last_run = LastRun(is_new, self._clean_file.exists(), is_same_boot)
        self.data_id = node.data_id if node is not None and node.data_id else str(uuid.uuid4())
        """Made once, with the directory: another one means that this is another directory, whatever it is called."""
        self.deletions = Deletions.open(path / DELETIONS)

    @classmethod
    def open(cls, path: Path, boot_id_file: Path = BOOT_ID_FILE) -> "DataDirectory":
        """Make the directory if needed and take its lock. Raises StorageError when another process has it."""
        path = path.absolute()
        filling = unfinished_filling(path, VHOSTS)
        if filling is not None:
            raise StorageError(
                Thing("data directory", str(path)),
                f"holds {filling.name} that was not completed",
                f"run `{filling.command}` again, which begins anew, or delete the directory's contents",
            )
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o750)
            lock = _locked(path / ".lock")
            remove_emptied(path)
        except OSError as error:
            raise StorageError(
                Thing("data directory", str(path)),
                f"cannot be used: {error.strerror}",
                "make it writable for the broker's user or name another one with --data-dir",
            ) from error
        try:
            return cls(path, lock, _boot_id(boot_id_file), _read_node(path / NODE))
        except BaseException:
            os.close(lock)
            raise

    @property
    def users_file(self) -> Path:
        return self.path / _USERS

    @property
    def user_limits_file(self) -> Path:
        return self.path / USER_LIMITS

    @property
    def vhosts_file(self) -> Path:
        return self.path / VHOSTS

    @property
    def is_of_cluster(self) -> bool:
        """Return whether a broker of a cluster wrote the directory."""
        return (self.path / CLUSTER).exists() or (self.path / APPLIED).exists()

    @property
    def _clean_file(self) -> Path:
        return self.path / "clean"

    def vhost_directory(self, name: str) -> Path:
        """Return a vhost's directory: a digest, because a vhost's name may have characters that a path cannot."""
        return self.path / directory_name(name)

    @property
    def may_have_lost_page_cache(self) -> bool:
        """Return whether unsynced writes may be lost: the machine went down under the broker."""
        return not (self.last_run.is_new or self.last_run.was_clean or self.last_run.same_boot)

    def check_whole(self) -> None:
        """Check for missing files: one that is missing beside others is an accident, not a new broker.

        Raises StorageError.
        """
        has_vhosts = self.vhosts_file.exists()
        has_data = any(_is_in_use(entry) for entry in self.path.iterdir() if len(entry.name) == 40)
        if not has_vhosts and (has_data or VHOSTS in self._files):
            raise _missing(self.vhosts_file, "to start without virtual hosts, create it with []")
        is_expected = _USERS in self._files if self._files else has_vhosts
        if is_expected and not self.users_file.exists():
            raise _missing(self.users_file, f"to create the default user again, remove it from `files` in {NODE}")

    def has_proof(self, vhost: str) -> bool:
        """Return whether a vhost was listed last, so that it is refused without its definitions' proof and its log."""
        return _proof_name(vhost) in self._files

    def check_settings(self, vhost: str) -> None:
        """Check for missing policies, limits or settings: without them queues might promise less than before.

        Raises StorageError.
        """
        for file, nothing in _NOTHING.items():
            name = f"{directory_name(vhost)}/{file}"
            if name in self._files and not (self.path / name).exists():
                raise _missing(self.path / name, f"to start without its contents, create it with {nothing}")

    def raise_format(self) -> int:
        """State the newest format, and return the one before. Call it before the first log is opened.

        An older version refuses the directory from now on. Nothing else in `node.json` changes. Raises StorageError.
        """
        before, self.format = self.format, FORMAT
        node = _found_node(self.path / NODE)
        if node is None:
            # Without a directory there were no writes that the disk may have lost.
            boot_id = self._boot_id if self.last_run.is_new else ""
            node = {"boot_id": boot_id, "data_id": self.data_id}
        if node.get("format") != FORMAT:
            write_json(self.path / NODE, {**node, "format": FORMAT})
        return before

    def begin(self, vhosts: Sequence[str]) -> None:
        """Replace the record of the last run.

        Call it when all logs are open and the skips after a lost page cache are on the disk. Raises StorageError.
        """
        if self.last_run.was_clean:
            self._clean_file.unlink(missing_ok=True)
            sync_directory(self.path)  # after this a power failure must not find `clean`
        self._has_begun = True
        self.note_vhosts(vhosts)

    def note_vhosts(self, vhosts: Sequence[str]) -> None:
        """List the files that the next start requires; from `begin` on. Raises StorageError."""
        if not self._has_begun:
            return
        files = listed_files(self.path, vhosts)
        self._files = frozenset(files)  # even when they cannot be written: a deleted one may be made again now
        node = {"format": self.format, "boot_id": self._boot_id, "data_id": self.data_id, "files": files}
        write_json(self.path / NODE, node)

    def mark_clean(self) -> None:
        """Record a clean stop as its last step: everything is on the disk, so the next start need not check."""
        write_file(self._clean_file, b"")

    def close(self) -> None:
        """Release the lock."""
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
    """Keep brokers out of a data directory; raise StorageError when one uses it.

    A directory without a lock was never a broker's.
    """
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
    """Keep brokers out of a data directory that is only read; raise StorageError when one uses it.

    A directory without a lock was never a broker's.
    """
    try:
        lock = os.open(path / ".lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        yield
        return
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _in_use(path, lock, "stop it first, or use a restored backup") from error
        yield
    finally:
        os.close(lock)


def _in_use(path: Path, lock: int, fix: str) -> StorageError:
    holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
    return StorageError(
        Thing("data directory", str(path)), f"is in use by another broker (process {holder} holds its .lock)", fix
    )


def _missing(path: Path, last_resort: str) -> StorageError:
    return StorageError(
        Thing("file", str(path)),
        "is missing, but the data that it describes exists",
        f"restore it, for example from a backup, or name an empty directory; {last_resort}",
    )


def listed_proofs(data_directory: Path) -> frozenset[str]:
    """Return the names of the vhosts' directories whose proof `node.json` lists. Raises StorageError."""
    node = _read_node(data_directory / NODE)
    files = node.files if node is not None else frozenset[str]()
    return frozenset(name.removesuffix(f"/{PROOF}") for name in files if name.endswith(f"/{PROOF}"))


def listed_files(data_directory: Path, vhosts: Sequence[str]) -> list[str]:
    """Return the files that `node.json` lists: if one of them is missing, the next start is refused.

    Settings that were never made are not listed.
    """
    settings = (f"{directory_name(vhost)}/{file}" for vhost in vhosts for file in _NOTHING)
    return [
        _USERS,
        VHOSTS,
        *map(_proof_name, vhosts),
        *(name for name in settings if (data_directory / name).exists()),
    ]


def _proof_name(vhost: str) -> str:
    return f"{directory_name(vhost)}/{PROOF}"


def _is_in_use(path: Path) -> bool:
    """Return whether a vhost's directory is in use, not just being made or deleted."""
    return (path / "definitions.amqp").exists() and not (path / ".deleted").exists()


def directory_name(vhost: str) -> str:
    """Return the name of a vhost's directory."""
    return hashlib.sha1(vhost.encode(), usedforsecurity=False).hexdigest()


def _locked(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StorageError(Thing("lock", str(path)), "is not a file", "remove it")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        refusal = _in_use(path.parent, descriptor, "stop it first, or name another directory with --data-dir")
        os.close(descriptor)
        raise refusal from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)  # only for the message above: the kernel holds the lock
    return descriptor


@dataclass(frozen=True, slots=True)
class _Node:
    """Content of `node.json`; ids are empty where it has no usable one."""

    format: int
    boot_id: str
    data_id: str
    files: frozenset[str]


def _read_node(path: Path) -> _Node | None:
    """Read `node.json`. Keys may be missing: older versions wrote fewer, and a backup is restored without a boot."""
    found = _found_node(path)
    if found is None:
        return None
    boot_id, data_id = found.get("boot_id"), found.get("data_id")
    if not isinstance(data_id, str) or _DATA_ID.fullmatch(data_id) is None:
        data_id = ""
    files = frozenset(found.get("files", []))
    return _Node(found.get("format", FORMATS[0]), boot_id if isinstance(boot_id, str) else "", data_id, files)


def _found_node(path: Path) -> dict[str, Any] | None:
    """Return `node.json` with every key that it has. Raises StorageError for one of a newer version."""
    try:
        found = read_json(path)
    except FileNotFoundError:
        return None
    if isinstance(found, dict) and found.get("format", FORMATS[0]) not in FORMATS:
        raise StorageError(
            Thing("file", str(path)),
            f"has the format {found['format']}, and this version knows the formats {FORMATS[0]} to {FORMAT}",
            "start the version that wrote it, or a newer one",
        )
    files = found.get("files", []) if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(files, list) or not all(isinstance(name, str) for name in files):
        raise StorageError(
            Thing("file", str(path)),
            "must hold an object, and `files` in it a list of names",
            "correct it, then start again",
        )
    return found


def _boot_id(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""  # an unknown boot counts as another one: the careful choice
