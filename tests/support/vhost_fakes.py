"""Fakes at a vhost's ports.

They are an engine's shard of plain dictionaries that refuses impossible calls, a definitions file in memory whose
writes can be delayed or fail, a storage of such vhosts, and permissions by sets of names.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from penstock.metadata.effects import (
    Entry,
    PersistExchangeDeleted,
    PersistQueue,
    PersistQueueDeleted,
    PersistUnbound,
)
from penstock.model.arguments import NO_ARGUMENTS, Arguments
from penstock.model.errors import DiskFullError, FileClosedError, NotWrittenError, StorageError, Thing
from penstock.model.field_table import decode_table
from penstock.model.names import ConnectionId, UserName, VhostName
from penstock.model.records import Access
from penstock.native import (
    GroupState,
    LeaseOwnerState,
    LeaseState,
    NewQueue,
    NewRoute,
    ProducerSequences,
    ProducerState,
    QueueCounts,
    ReservedLease,
    SeenIds,
    Shard,
    StageState,
    StreamRetention,
    StreamState,
    VhostCounts,
)
from penstock.routing import headers as headers_rule
from penstock.routing import topic
from penstock.routing.murmur3 import murmur3
from penstock.vhost.ports import OpenedVhost
from penstock.vhost.rights import Rights

Route = tuple[str, bytes | None, bool, str]
NO_COUNTS = QueueCounts()


class FakeShardError(Exception):
    """An impossible call of the shard: the machine was wrong."""


class FakeShard:
    """Holds names and routes, and routes by checking all of them. The default exchange is built in."""

    def __init__(self, highest_queue_id: int = 0) -> None:
        self.highest_queue_id = highest_queue_id
        self.fault: str | None = None
        self.is_stalled = False
        self.retained: list[int] | None = None
        self.queues: dict[int, str] = {}
        self.levels: dict[str, str | None] = {}
        self.auto_delete: set[str] = set()
        self.counts: dict[str, QueueCounts] = {}
        self.exchanges: dict[str, tuple[str, str | None]] = {}
        self.routes: dict[str, set[Route]] = {}
        self.streams: dict[int, FakeStream] = {}
        self.sequences: dict[str, int] = {}
        self.producer_owners: dict[str, str] = {}
        self.reserved: dict[int, dict[str, list[LeaseState]]] = {}
        self.decided: dict[int, StageState] = {}
        self.shard_count = 1
        self.homes: dict[int, int] = {}
        """The shards of queues that are put."""
        self.dedicated: set[int] = set()
        self.dedicated_max = 256
        """The limit of own logs."""
        self.shut: set[int] = set()
        self.expires: dict[int, int] = {}
        """The times after which queues expire."""
        self.expired: set[int] = set()
        self.is_closed = False

    def retain_queues(self, ids: Sequence[int], priorities: Sequence[int] = ()) -> int:
        self.retained = list(ids)
        return 0

    def put_queue(self, queue_id: int, name: str, /, *, auto_delete: bool, level: str | None) -> None:
        self._check(queue_id not in self.queues, f"queue {queue_id} is there")
        self._check(name not in self.queues.values(), f"queue {name} is there")
        self.queues[queue_id] = name
        self.levels[name] = level
        if auto_delete:
            self.auto_delete.add(name)

    def put_queues(self, queues: Sequence[NewQueue]) -> None:
        for queue in queues:
            self._check(queue.shard < self.shard_count, f"no shard {queue.shard}")
            self.put_queue(queue.id, queue.name, auto_delete=queue.auto_delete, level=queue.level)
            self.homes[queue.id] = queue.shard
            if queue.expires_ms is not None:
                self.expires[queue.id] = queue.expires_ms
            if queue.retention is not None:
                self.streams[queue.id] = FakeStream(queue.retention)

    def grow(self, count: int) -> None:
        self.shard_count = max(self.shard_count, count)

    def dedicate_queue(self, queue_id: int, /) -> None:
        if queue_id not in self.dedicated and len(self.dedicated) >= self.dedicated_max:
            raise DiskFullError(Thing("log", "/"), "finds no room", "free space")
        self.dedicated.add(queue_id)

    def delete_queue(self, queue_id: int, /) -> int:
        if queue_id in self.dedicated:
            self.dedicated.remove(queue_id)
            if queue_id not in self.queues:
                return 0
        self._check(queue_id in self.queues, f"no queue {queue_id}")
        name = self.queues.pop(queue_id)
        self.streams.pop(queue_id, None)
        bound = [route for routes in self.routes.values() for route in routes if route[2:] == (False, name)]
        self._check(not bound, f"queue {name} still has routes")
        self.auto_delete.discard(name)
        counts = self.counts.pop(name, NO_COUNTS)
        return counts.ready_count + counts.unacked_count

    def purge_queue(self, queue_id: int, /) -> int:
        counts = self.queue_counts([queue_id])[0]
        self.counts[self.queues[queue_id]] = QueueCounts(
            unacked_count=counts.unacked_count,
            unacked_bytes=counts.unacked_bytes,
            consumer_count=counts.consumer_count,
        )
        return counts.ready_count

    def put_exchange(
        self,
        name: str,
        kind: str,
        alternate: str | None,
        *,
        algorithm: str = "ring",
        hash_header: str | None = None,
        hash_property: str | None = None,
        delayed: bool = False,
        history_length: int | None = None,
        deduplication: SeenIds | None = None,
    ) -> None:
        self._check(name != "", "the default exchange is built in")
        self._check(name not in self.exchanges, f"exchange {name} is there")
        self.exchanges[name] = (kind, alternate)
        self.routes[name] = set()

    def delete_exchange(self, name: str) -> None:
        self._check(not self.routes[name], f"exchange {name} still has routes")
        bound = [route for routes in self.routes.values() for route in routes if route[2:] == (True, name)]
        self._check(not bound, f"exchange {name} is still a destination")
        del self.exchanges[name], self.routes[name]

    def add_route(self, exchange: str, key: str, match: bytes | None, to_exchange: bool, destination: str) -> None:
        known = self.exchanges if to_exchange else self.queues.values()
        self._check(destination in known, f"no destination {destination}")
        self._check((key, match, to_exchange, destination) not in self.routes[exchange], "the route is there")
        self.routes[exchange].add((key, match, to_exchange, destination))

    def add_routes(self, routes: Sequence[NewRoute]) -> None:
        for route in routes:
            self.add_route(route.exchange, route.key, route.match, route.to_exchange, route.destination)

    def remove_route(self, route: NewRoute) -> None:
        removed = (route.key, route.match, route.to_exchange, route.destination)
        self._check(removed in self.routes[route.exchange], "no such route")
        self.routes[route.exchange].remove(removed)

    def shut_empty_queue(self, queue_id: int, /) -> QueueCounts:
        counts = self.queue_counts([queue_id])[0]
        if not counts.ready_count:
            self.shut.add(queue_id)
        return counts

    def shut_queue(self, queue_id: int, /) -> None:
        self.shut.add(queue_id)

    def reopen_queue(self, queue_id: int, /) -> None:
        self._check(queue_id in self.queues, f"no queue {queue_id}")
        self.shut.discard(queue_id)

    def use_queue(self, queue_id: int, /) -> None:
        self._check(queue_id in self.expires, f"queue {queue_id} does not expire")
        self.expired.discard(queue_id)

    def is_unused(self, queue_id: int, /) -> bool:
        return queue_id in self.expired

    def queue_counts(self, ids: Sequence[int]) -> list[QueueCounts]:
        for queue_id in ids:
            self._check(queue_id in self.queues, f"no queue {queue_id}")
        return [self.counts.get(self.queues[queue_id], NO_COUNTS) for queue_id in ids]

    def begin_backup(self) -> "FakeBackup":
        return FakeBackup(sorted(self.queues.values()))

    def stream_states(self, ids: Sequence[int]) -> list[StreamState]:
        return [self.stream(queue_id).state() for queue_id in ids]

    def stream_extents(self, ids: Sequence[int]) -> list[StreamState]:
        states = (self.stream(queue_id).state() for queue_id in ids)
        return [
            StreamState(
                first=state.first,
                next=state.next,
                count=state.count,
                bytes=state.bytes,
                reader_count=state.reader_count,
            )
            for state in states
        ]

    def offset_at(self, queue_id: int, timestamp_ms: int, /) -> int:
        return self.stream(queue_id).offset_at(timestamp_ms)

    def trim_stream(self, queue_id: int, before: int, /) -> int:
        """Trim; every message is a segment of its own."""
        return self.stream(queue_id).trim(before)

    def stream_groups(self, queue_id: int, /) -> list[GroupState]:
        return [GroupState(name=name, offset=offset) for name, offset in self.stream(queue_id).groups.items()]

    def store_offset(self, queue_id: int, group: str, offset: int, /) -> None:
        self.stream(queue_id).groups[group] = offset

    def delete_group(self, queue_id: int, group: str, /) -> bool:
        return self.stream(queue_id).groups.pop(group, None) is not None

    def reserve_lease(
        self, queue_id: int, owner: str, lease: int, messages_max: int, bytes_max: int, /
    ) -> ReservedLease:
        """Reserve the messages that the counts say are ready, at most all of them."""
        name = self.queues[queue_id]
        counts = self.counts.get(name, NO_COUNTS)
        count = min(counts.ready_count, messages_max or counts.ready_count)
        ready_count = counts.ready_count - count
        self.counts[name] = QueueCounts(
            ready_count=ready_count,
            unacked_count=counts.unacked_count + count,
            ready_bytes=counts.ready_bytes,
            unacked_bytes=counts.unacked_bytes,
            consumer_count=counts.consumer_count,
        )
        reserved = LeaseState(number=lease, message_count=count)
        self.reserved.setdefault(queue_id, {}).setdefault(owner, []).append(reserved)
        return ReservedLease(message_count=count, bytes=0, reserved_at_ms=0, is_new=True, ready_count=ready_count)

    def ack_leases(self, queue_id: int, owner: str, up_to: int, /) -> int:
        return sum(lease.message_count for lease in self._ended(queue_id, owner, range(up_to + 1)))

    def release_leases(self, queue_id: int, owner: str, first: int, /) -> int:
        return sum(lease.message_count for lease in self._ended(queue_id, owner, range(first, 2**63)))

    def leases(self, queue_id: int, /) -> list[LeaseOwnerState]:
        reserved = sorted(self.reserved.get(queue_id, {}).items())
        return [LeaseOwnerState(name=owner, leases=leases) for owner, leases in reserved]

    def _ended(self, queue_id: int, owner: str, numbers: range) -> list[LeaseState]:
        leases = self.reserved.get(queue_id, {}).get(owner, [])
        ended = [lease for lease in leases if lease.number in numbers]
        leases[:] = [lease for lease in leases if lease not in ended]
        return ended

    def producer_sequences(self, name: str, /) -> ProducerSequences | None:
        sequence = self.sequences.get(name)
        return None if sequence is None else ProducerSequences(complete=sequence, highest=sequence)

    def producer_owner(self, name: str, /) -> str | None:
        return self.producer_owners.get(name)

    def producers(self) -> list[ProducerState]:
        owners = self.producer_owners
        return [
            ProducerState(name=name, sequence=sequence, owner=owners.get(name))
            for name, sequence in self.sequences.items()
        ]

    def delete_producer(self, name: str, /) -> bool:
        return self.sequences.pop(name, None) is not None

    def delete_producers_of(self, user: str, /) -> int:
        owned = [name for name, owner in self.producer_owners.items() if owner == user]
        for name in owned:
            self.sequences.pop(name, None)
            del self.producer_owners[name]
        return len(owned)

    def stage_states(self, ids: Sequence[int]) -> list[StageState]:
        return [self.decided.get(queue, StageState()) for queue in ids]

    def complete(self) -> None:
        """Nothing expires in this one."""

    def carry_on_staged(self) -> None:
        pass

    def stream(self, queue_id: int) -> "FakeStream":
        self._check(queue_id in self.streams, f"no stream {queue_id}")
        return self.streams[queue_id]

    def shard_totals(self) -> list[VhostCounts]:
        """All messages are in shard 0."""
        return [self.totals(), *[VhostCounts()] * (self.shard_count - 1)]

    def totals(self) -> VhostCounts:
        counts = self.counts.values()
        return VhostCounts(
            ready_count=sum(each.ready_count for each in counts),
            unacked_count=sum(each.unacked_count for each in counts),
        )

    def close(self, *, delete: bool) -> None:
        self.is_closed = True

    def route(self, exchange: str, key: str, headers: Arguments = NO_ARGUMENTS) -> list[str]:
        """Route by the compiled routes alone."""
        reached: set[str] = set()
        visited: set[str] = set()
        waiting = [exchange]
        while waiting:
            name = waiting.pop()
            if name in visited:
                continue
            visited.add(name)
            if name == "":
                reached |= {key} & set(self.queues.values())
            elif name in self.exchanges:
                matched = [route for route in self.routes[name] if self._matches(name, route, key, headers)]
                reached |= {route[3] for route in matched if not route[2]}
                waiting += [route[3] for route in matched if route[2]]
                alternate = self.exchanges[name][1]
                waiting += [alternate] if not matched and alternate is not None else []
        return sorted(reached)

    def _matches(self, exchange: str, route: Route, key: str, headers: Arguments) -> bool:
        kind = self.exchanges[exchange][0]
        if kind == "headers":
            assert route[1] is not None
            return headers_rule.matches(decode_table(route[1]), headers)
        if kind == "topic":
            return topic.matches(route[0], key)
        if kind == "x-super-stream":
            places = sorted(int(each[0]) for each in self.routes[exchange])
            return int(route[0]) == places[murmur3(key.encode()) % len(places)]
        return kind == "fanout" or route[0] == key

    @staticmethod
    def _check(holds: bool, problem: str) -> None:
        if not holds:
            raise FakeShardError(problem)


class FakeStream:
    """A stream's messages as the times at which they were stored, from offset `first` on."""

    def __init__(self, retention: StreamRetention) -> None:
        self.retention = retention
        self.first = 1
        self.times: list[int] = []
        self.groups: dict[str, int | None] = {}

    def state(self) -> StreamState:
        count = len(self.times)
        return StreamState(
            first=self.first,
            next=self.first + count,
            count=count,
            bytes=100 * count,
            first_timestamp_ms=self.times[0] if self.times else 0,
            last_timestamp_ms=self.times[-1] if self.times else 0,
        )

    def trim(self, before: int) -> int:
        count = max(0, min(before - self.first, len(self.times)))
        self.first, self.times = self.first + count, self.times[count:]
        return count

    def offset_at(self, timestamp_ms: int) -> int:
        return self.first + bisect_left(self.times, timestamp_ms)


class FakeBackup:
    """The content when it was begun."""

    def __init__(self, content: list[str]) -> None:
        self.content = content
        self.position = len(content)
        self.is_closed = False

    @property
    def sizes(self) -> tuple[int, int]:
        return len(self.read()[0]), 0

    def write(self, directory: object) -> None:
        assert not self.is_closed

    def read(self) -> tuple[bytes, bytes]:
        assert not self.is_closed
        return "\n".join(self.content).encode(), b""

    def close(self) -> None:
        self.is_closed = True


class FakeDefinitions:
    """`batches` holds the entries of each append.

    `hold` makes appends wait until `go`; `fails`, `takes_back` and `is_closed` make them raise, the latter two when
    nothing of them is written; the next `full_count` appends find no space, and while `is_full` only deletions do.
    """

    def __init__(self) -> None:
        self.batches: list[list[Entry]] = []
        self.fails = False
        self.takes_back = False
        self.is_closed = False
        self.is_full = False
        self.full_count = 0
        self.entered = asyncio.Event()
        self._gate = asyncio.Event()
        self._gate.set()

    @property
    def entries(self) -> list[Entry]:
        return [entry for batch in self.batches for entry in batch]

    def hold(self) -> None:
        self._gate.clear()
        self.entered.clear()

    def go(self) -> None:
        self._gate.set()

    def begin_backup(self) -> FakeBackup:
        return FakeBackup(sorted(entry.queue.name for entry in self.entries if isinstance(entry, PersistQueue)))

    async def append(self, entries: Sequence[Entry]) -> None:
        self.entered.set()
        await self._gate.wait()
        if self.fails:
            raise StorageError(Thing("file", "definitions.amqp"), "could not be synced", "look at the disk")
        if self.takes_back:
            raise NotWrittenError(Thing("file", "definitions.amqp"), "cannot be written", "look at the disk")
        if self.is_closed:
            raise FileClosedError(Thing("file", "definitions.amqp"), "takes no more entries", "restart the broker")
        small = (PersistQueueDeleted, PersistExchangeDeleted, PersistUnbound)
        if self.full_count > 0 or (self.is_full and not all(isinstance(entry, small) for entry in entries)):
            self.full_count -= 1
            raise DiskFullError(Thing("file", "definitions.amqp"), "finds no room", "free space")
        self.batches.append(list(entries))


@dataclass
class FakeStorage:
    """Remembers the content of every name for `open`. `highest_queue_id` is the highest in every opened log."""

    highest_queue_id: int = 0
    order: list[VhostName] = field(default_factory=list)
    definitions: dict[VhostName, FakeDefinitions] = field(default_factory=dict)
    shards: dict[VhostName, FakeShard] = field(default_factory=dict)
    deleting: set[VhostName] = field(default_factory=set)

    async def names(self) -> list[VhostName]:
        return list(self.order)

    async def open(self, name: VhostName) -> OpenedVhost:
        entries = self.definitions[name].entries
        self.shards[name] = FakeShard(self.highest_queue_id)
        return OpenedVhost(name, self.definitions[name], cast(Shard, self.shards[name]), entries)

    async def create(self, name: VhostName, shard_count: int = 1) -> OpenedVhost:
        self.order.append(name)
        self.definitions[name] = FakeDefinitions()
        opened = await self.open(name)
        opened.shard.grow(shard_count)
        return opened

    def is_being_deleted(self, name: VhostName, /) -> bool:
        return name in self.deleting

    async def begin_deletion(self, name: VhostName) -> None:
        self.deleting.add(name)

    async def delete(self, name: VhostName) -> None:
        assert self.shards[name].is_closed
        assert name in self.deleting
        self.order.remove(name)
        del self.definitions[name]
        self.deleting.remove(name)


@dataclass(frozen=True)
class NamesAllowed:
    """Permissions as plain sets of names; None allows everything."""

    configure: frozenset[str] | None = None
    write: frozenset[str] | None = None
    read: frozenset[str] | None = None

    def allows(self, access: Access, name: str, _kind: str = "") -> bool:
        names: frozenset[str] | None = getattr(self, access.value)
        return names is None or name in names

    def narrows_keys(self, _exchange: str) -> bool:
        return False

    def allows_key(self, _access: Access, _exchange: str, _key: str) -> bool:
        return True


def rights(connection: int = 1, permissions: NamesAllowed | None = NamesAllowed(), *, admin: bool = True) -> Rights:
    return Rights(UserName("anna"), admin, permissions, ConnectionId(connection))


class Tasks:
    """A spawn that keeps its tasks, and raises their bugs when the scenario ends."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work, name=name))

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        ends = await asyncio.gather(*self.tasks, return_exceptions=True)
        bugs = [end for end in ends if isinstance(end, Exception)]
        assert not bugs, bugs
