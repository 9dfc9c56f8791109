"""Interfaces that a virtual host needs of other packages.

The definitions file, the storage of virtual hosts and the users are protocols; the engine is the classes of the native
module. Tests pass fakes.
"""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

from penstock.metadata import VhostTopology
from penstock.metadata.commands import Command
from penstock.metadata.effects import Entry
from penstock.model.errors import StoppedError
from penstock.model.names import ConnectionId, QueueName, VhostName
from penstock.model.records import Access
from penstock.native import QueueCounts, Replica, Shard
from penstock.storage.backup import ClosableLog
from penstock.vhost.batches import Outcome

T = TypeVar("T")
P = ParamSpec("P")


class Permissions(Protocol):
    """The permissions of one user in one vhost."""

    def allows(self, access: Access, name: str, kind: str, /) -> bool: ...
    def narrows_keys(self, exchange: str, /) -> bool:
        """Whether a topic exchange that is open may be closed for some routing keys."""
        ...

    def allows_key(self, access: Access, exchange: str, key: str, /) -> bool: ...


class DefinitionsBackup(Protocol):
    """A copy of a definitions file, fixed at one length: `sizes` are its bytes and its proof's."""

    @property
    def sizes(self) -> tuple[int, int]: ...
    def write(self, path: Path) -> None: ...
    def read(self) -> tuple[bytes, bytes]: ...
    def close(self) -> None: ...


class DefinitionsFile(Protocol):
    def begin_backup(self) -> DefinitionsBackup:
        """To be called while nothing is being appended."""

    async def append(self, entries: Sequence[Entry]) -> None:
        """Return when the entries are on the disk.

        A change of policies or limits comes alone. Raises DiskFullError or NotWrittenError when nothing is written and
        later entries are taken, FileClosedError when nothing is written and none are taken, and another StorageError
        when the entries may be on the disk.
        """


@dataclass(slots=True)
class OpenedVhost:
    """One vhost as the storage returns it: its files, opened and read. `entries` is what the definitions file held."""

    name: VhostName
    definitions: DefinitionsFile
    shard: Shard
    entries: list[Entry] = field(default_factory=list)


class VhostsStorage(Protocol):
    async def names(self) -> list[VhostName]:
        """In the order of `vhosts.json`."""

    async def open(self, name: VhostName) -> OpenedVhost:
        """Open one of `names`."""

    async def create(self, name: VhostName, shard_count: int = 1) -> OpenedVhost:
        """Make it durable with all its shards, or leave nothing of it.

        A deletion of that name that failed half-way is completed first.
        """

    def is_being_deleted(self, name: VhostName, /) -> bool:
        """Return whether a deletion has begun and not ended: it is under way, or failed half-way."""
        ...

    async def begin_deletion(self, name: VhostName) -> None:
        """Return when it is on the disk that the vhost is being deleted: from then on a start completes it."""

    async def delete(self, name: VhostName) -> None:
        """Delete it from the list of vhosts, its files and every permission in it, then end the deletion.

        Its shard is already closed. A deletion that failed half-way continues.
        """


class VhostOwner(Protocol):
    """The task that changes a vhost's topology, and the shard with its messages."""

    @property
    def topology(self) -> VhostTopology:
        """The committed topology, the same object for the whole time."""
        ...

    @property
    def shard(self) -> Shard:
        """Raises NotLedError in a cluster where another broker serves the vhost's messages."""
        ...

    @property
    def stopped(self) -> StoppedError | None: ...
    @property
    def is_applying(self) -> bool:
        """Whether the engine may be ahead of the topology."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether a command is being decided or committed."""
        ...

    @property
    def fault(self) -> str | None:
        """Why it takes no more commands or messages, or None."""
        ...

    def number_of(self, connection: ConnectionId, /) -> ConnectionId:
        """Return the number that a connection of this broker has in the topology."""
        ...

    async def submit(self, command: Command, /) -> Outcome:
        """Return when the command is committed. Raises its RefusedError, and faults."""
        ...

    async def read(self, look: Callable[[], T], /) -> T:
        """Return what `look` returns, which reads the committed topology alone."""
        ...

    async def read_serving(self, look: Callable[[], T], /) -> T:
        """Do the same for a client that wants to move messages. Raises NotLedError where it cannot."""
        ...

    async def read_delivering(self, look: Callable[[], T], /) -> T:
        """Do the same for a client that is answered with the messages that there are: they can be delivered then."""
        ...

    async def find_replica(self, shard: int, /) -> Replica | None:
        """Return this broker's replica of a shard, if streams may be read from it. None where this broker leads."""
        ...

    async def other_leader(self, unreachable: str, /) -> str | None:
        """Return the broker of the cluster that serves the vhost's messages, if another one does.

        Wait a while as long as none is known, or only one that is unreachable.
        """
        ...

    async def check_leader(self, broker: str, /) -> None:
        """Return unless it is known that another broker serves the vhost's messages. Raises NotLedError then."""
        ...

    async def read_engine(self, look: Callable[[], T], /) -> T:
        """Return what `look` returns, which asks the shard, too."""
        ...

    async def apart(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call work that may wait for the disk on a thread."""
        ...

    async def grow(self, shard_count: int, /) -> None:
        """Return when the shard has so many shards, and new queues are placed in them."""
        ...

    async def begin_backup(self) -> tuple[DefinitionsBackup, ClosableLog]:
        """Fix file and log at a moment when they agree."""
        ...

    def counts(self, names: list[QueueName], /) -> list[QueueCounts]:
        """Return the counts of queues, for a `look` of `read_engine`."""
        ...

    async def close(self, cause: str, /) -> None:
        """Take nothing more, and return when everything has an answer."""
        ...


class Spawn(Protocol):
    """Starts a supervised task: a bug in it is logged once and ends it."""

    def __call__(self, work: Coroutine[Any, Any, None], *, name: str) -> object: ...


class DefinitionsUsers(Protocol):
    """The users' part of definitions: entries are the objects of the JSON."""

    def export_users(self) -> list[dict[str, Any]]: ...
    def export_permissions(self) -> list[dict[str, Any]]: ...
    def export_topics(self) -> list[dict[str, Any]]: ...
    def check(
        self, users: list[dict[str, Any]], permissions: list[dict[str, Any]], topics: list[dict[str, Any]]
    ) -> list[str]:
        """Return the entries that cannot be honoured, one line each; empty if all can."""

    async def import_users(self, users: list[dict[str, Any]]) -> int: ...
    async def import_permissions(self, permissions: list[dict[str, Any]]) -> int: ...
    async def import_topics(self, topics: list[dict[str, Any]]) -> int: ...
