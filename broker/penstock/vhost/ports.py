"""What a vhost needs of other rooms, as protocols: the definitions file, the engine, the storage of vhosts, users.

Tests hand in fakes of these; the launcher hands in the real ones. Nothing here knows how they work.
"""

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from penstock.metadata.effects import Entry
from penstock.model.names import VhostName
from penstock.model.records import Access

QueueCounts = tuple[int, int, int, int, int]
"""Ready, unsettled, ready bytes, unsettled bytes, consumers."""

NewQueue = tuple[int, str, bool, str | None, str | None, tuple[int, int] | None]
"""Id, name, auto_delete, level, least level; of a stream: the greatest age in milliseconds and the most bytes, 0 for no
bound."""
StreamState = tuple[int, int, int, int, int, int, int]
"""First, next, count, bytes, first and last timestamp in milliseconds, readers."""
GroupState = tuple[str, int | None, int]
"""Name, stored offset, readers."""
ReservedLease = tuple[int, int, int, bool, int]
"""Messages, bytes, when in milliseconds, whether it was not there before, and how many messages stay ready."""
LeaseState = tuple[int, int, int, int]
"""Number, messages, bytes, when in milliseconds."""
LeaseOwnerState = tuple[str, int, list[LeaseState]]
"""Name, the highest number it has acknowledged, and its leases."""
ProducerState = tuple[str, int, int, bool]
"""Name, highest sequence, about when it was used in milliseconds, whether a publisher has it."""
StageState = tuple[int | None, bool]
"""The last batch that was decided, and whether it is still to be copied."""
NewRoute = tuple[str, str, bytes | None, bool, str]
"""Exchange, key, match, to_exchange, destination."""


class Permissions(Protocol):
    """What one user may do in one vhost."""

    def allows(self, access: Access, name: str, kind: str, /) -> bool: ...
    def narrows_keys(self, exchange: str, /) -> bool:
        """Whether a topic exchange that is open may be closed for some routing keys."""
        ...

    def allows_key(self, access: Access, exchange: str, key: str, /) -> bool: ...


class LogBackup(Protocol):
    """A copy of a log, fixed at one position. While it is neither written nor closed the log keeps the files
    that it names."""

    @property
    def position(self) -> int: ...
    def write(self, directory: str) -> None: ...
    def close(self) -> None: ...


class DefinitionsBackup(Protocol):
    """A copy of a definitions file, fixed at one length."""

    def write(self, path: Path) -> None: ...
    def close(self) -> None: ...


class DefinitionsFile(Protocol):
    def begin_backup(self) -> DefinitionsBackup:
        """To be called while nothing is being appended."""

    async def append(self, entries: Sequence[Entry]) -> None:
        """Returns when the entries are on the disk. Raises DiskFullError, after which the same may be tried again; any
        other StorageError is the end of it. After a NotWrittenError no exchange, queue or binding is there or gone that
        was not before, after a restart too; after others it may be."""


class Shard(Protocol):
    """One vhost's part of the native engine; see `Shard` in `_core.pyi`."""

    @property
    def highest_queue_id(self) -> int: ...
    @property
    def fault(self) -> str | None: ...
    @property
    def is_stalled(self) -> bool:
        """Whether calls would wait for long, but for `fault` and `totals`: for the vhost's log, or a queue's own."""

    def retain_queues(self, ids: Sequence[int]) -> int: ...
    def put_queues(self, queues: Sequence[NewQueue]) -> None: ...
    def dedicate_queue(self, queue_id: int, /) -> None:
        """Gives a queue a log of its own, before `put_queues` names it first. May wait for the disk. Raises
        DiskFullError or another StorageError; then the log was not created."""

    def delete_queue(self, queue_id: int, /) -> int:
        """Also takes back the log of a queue that was not put."""

    def shut_empty_queue(self, queue_id: int, /) -> QueueCounts:
        """Lets no more messages into a queue that holds none, until it is deleted or reopened; gives what it holds."""

    def shut_queue(self, queue_id: int, /) -> None:
        """Lets no more messages into a queue, whatever it holds. One that is gone already may be named."""

    def reopen_queue(self, queue_id: int, /) -> None: ...
    def purge_queue(self, queue_id: int, /) -> int: ...
    def put_exchange(self, name: str, kind: str, alternate: str | None) -> None: ...
    def delete_exchange(self, name: str) -> None: ...
    def add_routes(self, routes: Sequence[NewRoute]) -> None: ...
    def remove_route(
        self, exchange: str, key: str, match: bytes | None, to_exchange: bool, destination: str
    ) -> None: ...
    def queue_counts(self, ids: Sequence[int]) -> list[QueueCounts]: ...
    def totals(self) -> tuple[int, int]: ...
    def stream_states(self, ids: Sequence[int]) -> list[StreamState]:
        """Reads records: it may block on the disk."""

    def stream_extents(self, ids: Sequence[int]) -> list[StreamState]:
        """The same without times, which are 0: nothing is read."""

    def offset_at(self, queue_id: int, timestamp_ms: int, /) -> int:
        """The first offset stored at that time or later; the next one when there is none. May read from the disk."""

    def trim_stream(self, queue_id: int, before: int, /) -> int:
        """Drops what whole sealed segments hold below an offset; the number of messages. May block on the disk."""

    def stream_groups(self, queue_id: int, /) -> list[GroupState]: ...
    def store_offset(self, queue_id: int, group: str, offset: int, /) -> None:
        """Returns when it is on the disk."""

    def delete_group(self, queue_id: int, group: str, /) -> bool: ...
    def reserve_lease(
        self, queue_id: int, owner: str, lease: int, messages_max: int, bytes_max: int, /
    ) -> ReservedLease:
        """Returns when it is on the disk."""

    def ack_leases(self, queue_id: int, owner: str, up_to: int, /) -> int: ...
    def release_leases(self, queue_id: int, owner: str, first: int, /) -> int: ...
    def leases(self, queue_id: int, /) -> list[LeaseOwnerState]: ...
    def producer_sequence(self, name: str, /) -> int | None: ...
    def producers(self) -> list[ProducerState]: ...
    def delete_producer(self, name: str, /) -> bool: ...
    def stage_states(self, ids: Sequence[int]) -> list[StageState]: ...
    def carry_on_staged(self) -> None:
        """Begins to copy what was decided before the start; returns at once."""

    def begin_backup(self) -> LogBackup: ...
    def close(self, *, delete: bool) -> None: ...


@dataclass(slots=True)
class OpenedVhost:
    """What the storage gives for one vhost: its files, opened and read. `entries` is what the definitions file held."""

    name: VhostName
    definitions: DefinitionsFile
    shard: Shard
    entries: list[Entry] = field(default_factory=list)


class VhostsStorage(Protocol):
    async def names(self) -> list[VhostName]:
        """In the order of `vhosts.json`."""

    async def open(self, name: VhostName) -> OpenedVhost:
        """Opens one of `names`."""

    async def create(self, name: VhostName) -> OpenedVhost:
        """Makes it durable, then opens it."""

    async def delete(self, name: VhostName) -> None:
        """Makes its absence durable, then removes its files. Its shard is closed already."""


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
        """What of it cannot be honoured, one line each; empty when all can."""

    async def import_users(self, users: list[dict[str, Any]]) -> int: ...
    async def import_permissions(self, permissions: list[dict[str, Any]]) -> int: ...
    async def import_topics(self, topics: list[dict[str, Any]]) -> int: ...
