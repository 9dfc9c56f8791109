"""A LavinMQ data directory from above: its schema, users, vhosts, and what else lies in it. It is only read, and only
while no LavinMQ uses it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock.importing.lavinmq.definitions import FoundTopology, read_topology
from penstock.importing.lavinmq.messages import SCHEMA, QueueFolder
from penstock.model.errors import PreconditionFailedError, StorageError, Thing
from penstock.storage.directory import directory_name
from penstock.storage.jsonfiles import read_json

DIRECT_USER: Final = "__direct"
"""LavinMQ's own, for its shovels."""

Objects = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class FoundVhost:
    name: str
    path: Path

    def topology(self) -> FoundTopology:
        return read_topology(self.path / "definitions.amqp")

    def folders(self) -> dict[str, QueueFolder]:
        """Queues by name, as their folders say: also those that the definitions do not name."""
        folders = (QueueFolder(file.parent) for file in sorted(self.path.glob("*/.queue")))
        return {folder.name: folder for folder in folders}

    def policies(self) -> Objects:
        return _objects(self.path / "policies.json")

    def operator_policies(self) -> Objects:
        return _objects(self.path / "operator_policies.json")

    def parameters(self) -> Objects:
        return _objects(self.path / "parameters.json")

    def limits(self) -> dict[str, Any]:
        try:
            limits = read_json(self.path / "limits.json")
        except FileNotFoundError:
            return {}
        return limits if isinstance(limits, dict) else {}

    def retained_count(self) -> int:
        """Retained messages of MQTT."""
        return len(list((self.path / "mqtt_retained_store").glob("*.msg")))


class LavinDirectory:
    """Use `opened`: it keeps a LavinMQ that starts meanwhile away."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator["LavinDirectory"]:
        """Raises PreconditionFailedError for what is none, is too old, or is in use."""
        if not (path / "vhosts.json").exists() and not (path / "users.json").exists():
            raise PreconditionFailedError(
                Thing("directory", str(path)),
                "is no data directory of LavinMQ: it has neither users.json nor vhosts.json",
                "name LavinMQ's data_dir",
            )
        with _shared_lock(path):
            _check_schema(path)
            yield cls(path)

    def users(self) -> Objects:
        return [user for user in _objects(self.path / "users.json") if user.get("name") != DIRECT_USER]

    def parameters(self) -> Objects:
        return _objects(self.path / "parameters.json")

    def vhosts(self) -> list[FoundVhost]:
        names = [vhost.get("name") for vhost in _objects(self.path / "vhosts.json")]
        found = [FoundVhost(str(name), self.path / directory_name(str(name))) for name in names]
        for vhost in found:
            if not vhost.path.is_dir():
                raise StorageError(
                    Thing("vhost", vhost.name),
                    f"is in vhosts.json, and its directory {vhost.path} is not there",
                    "put it back, or take the vhost out of vhosts.json",
                )
        return found


@contextmanager
def _shared_lock(path: Path) -> Iterator[None]:
    try:
        descriptor = os.open(path / ".lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield  # a copy of the directory has none
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise PreconditionFailedError(
            Thing("directory", str(path)), "is in use: LavinMQ holds its .lock", "stop LavinMQ first"
        ) from error
    finally:
        os.close(descriptor)


def _check_schema(path: Path) -> None:
    try:
        schema = (path / "schema_version").read_text().strip()
    except FileNotFoundError:
        return  # each file of messages names it, too
    if schema != str(SCHEMA):
        raise PreconditionFailedError(
            Thing("directory", str(path)),
            f"has schema {schema}, and only {SCHEMA} can be read",
            "start LavinMQ 2 on it once, which brings older ones up to it",
        )


def _objects(path: Path) -> Objects:
    """A file that is not there is an empty list."""
    try:
        items = read_json(path)
    except FileNotFoundError:
        return []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise StorageError(Thing("file", str(path)), "must hold a list of objects", "mend it or take it from a backup")
    return items
