"""A LavinMQ data directory: its schema, users, vhosts, and other files.

It is only read, and only while no LavinMQ uses it.
"""

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock.importing.lavinmq.definitions import FoundTopology, read_topology
from penstock.importing.lavinmq.files import Folder
from penstock.importing.lavinmq.messages import SCHEMA, QueueFolder
from penstock.importing.lavinmq.place import corrupt
from penstock.model.errors import PreconditionFailedError, StorageError, Thing
from penstock.storage.directory import directory_name

DIRECT_USER: Final = "__direct"
"""LavinMQ's internal user, for its shovels."""
SMALL_BYTES_MAX: Final = 4_096
"""The size limit of the lock and the schema's number."""

Objects = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class FoundVhost:
    name: str
    folder: Folder

    def topology(self) -> FoundTopology:
        return read_topology(self.folder)

    def folders(self) -> dict[str, QueueFolder]:
        """Return queues by name from their folders, including queues that the definitions do not name."""
        found: dict[str, QueueFolder] = {}
        for name in self.folder.folders():
            folder = self.folder.folder(name)
            if ".queue" not in folder.files():
                continue
            queue = QueueFolder(folder)
            if queue.name in found:
                raise corrupt(folder.path / ".queue", 0, f"another folder is of queue '{queue.name}', too")
            found[queue.name] = queue
        return found

    def policies(self) -> Objects:
        return _objects(self.folder, "policies.json")

    def operator_policies(self) -> Objects:
        return _objects(self.folder, "operator_policies.json")

    def parameters(self) -> Objects:
        return _objects(self.folder, "parameters.json")

    def limits(self) -> dict[str, Any]:
        try:
            limits = self.folder.read_json("limits.json")
        except FileNotFoundError:
            return {}
        return limits if isinstance(limits, dict) else {}

    def retained_count(self) -> int:
        """Return the number of retained messages of MQTT."""
        try:
            names = self.folder.folder("mqtt_retained_store").files()
        except FileNotFoundError:
            return 0
        return sum(name.endswith(".msg") for name in names)


class LavinDirectory:
    """A data directory. Use `opened`: it keeps out a LavinMQ that starts meanwhile."""

    def __init__(self, path: Path) -> None:
        self._folder = Folder(path)

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator["LavinDirectory"]:
        """Open a directory; raise PreconditionFailedError when it is no data directory, too old or in use."""
        if not (path / "vhosts.json").exists() and not (path / "users.json").exists():
            raise PreconditionFailedError(
                Thing("directory", str(path)),
                "is not a LavinMQ data directory: it has neither users.json nor vhosts.json",
                "name LavinMQ's data_dir",
            )
        with _shared_lock(Folder(path)):
            _check_schema(Folder(path))
            yield cls(path)

    def users(self) -> Objects:
        return [user for user in _objects(self._folder, "users.json") if user.get("name") != DIRECT_USER]

    def parameters(self) -> Objects:
        return _objects(self._folder, "parameters.json")

    def vhosts(self) -> list[FoundVhost]:
        names = [vhost.get("name") for vhost in _objects(self._folder, "vhosts.json")]
        found = [FoundVhost(str(name), self._folder.folder(directory_name(str(name)))) for name in names]
        for vhost in found:
            if not vhost.folder.exists():
                raise StorageError(
                    Thing("vhost", vhost.name),
                    f"is in vhosts.json, but its directory {vhost.folder.path} is not there",
                    "restore it, or remove the vhost from vhosts.json",
                )
        return found


@contextmanager
def _shared_lock(folder: Folder) -> Iterator[None]:
    with ExitStack() as held:
        # A copy of the directory has no lock.
        with suppress(FileNotFoundError):
            lock = held.enter_context(folder.file(".lock", SMALL_BYTES_MAX))
            try:
                fcntl.flock(lock.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise PreconditionFailedError(
                    Thing("directory", str(folder.path)), "is in use: LavinMQ holds its .lock", "stop LavinMQ first"
                ) from error
        yield


def _check_schema(folder: Folder) -> None:
    try:
        schema = folder.read("schema_version", SMALL_BYTES_MAX).decode(errors="replace").strip()
    except FileNotFoundError:
        return  # each file of messages names it, too
    if schema != str(SCHEMA):
        raise PreconditionFailedError(
            Thing("directory", str(folder.path)),
            f"has schema {schema}, and only {SCHEMA} can be read",
            "start LavinMQ 2 on it once to upgrade it",
        )


def _objects(folder: Folder, name: str) -> Objects:
    """Return a file's list of objects, empty when the file does not exist."""
    try:
        items = folder.read_json(name)
    except FileNotFoundError:
        return []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        path = folder.path / name
        raise StorageError(
            Thing("file", str(path)), "must hold a list of objects", "correct it or restore it from a backup"
        )
    return items
