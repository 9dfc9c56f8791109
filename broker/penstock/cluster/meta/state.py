"""The state of a cluster's metadata, and how changes are applied to it.

Changes come from the committed log alone, so one that does not fit is corruption, or a fault of this broker: it is
reported, and nothing after it is applied.
"""

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from penstock.cluster.meta.changes import (
    BrokerPut,
    BrokerRemoved,
    MetaChange,
    Record,
    ReplicaCountSet,
    SessionsCounted,
    ShardPlaced,
    UserDeleted,
    UserLimitsSet,
    UserPut,
    VhostChanged,
    VhostCounted,
    VhostCreated,
    VhostDeleted,
    VhostGrown,
)
from penstock.cluster.meta.commands import MetaAnswer
from penstock.cluster.record import BrokerName
from penstock.identity import Users
from penstock.metadata import VhostTopology, all_entries_of, apply_entry
from penstock.metadata.effects import (
    Change,
    Entry,
    PersistExchange,
    PersistExchangeDeleted,
    PersistQueue,
    PersistQueueDeleted,
)
from penstock.model.errors import StorageError, Thing
from penstock.model.limits import NO_LIMITS, Limits
from penstock.model.names import VhostName
from penstock.storage import directory_name
from penstock.storage.user_records import records_of, user_of

_WAY_OUT: Final = "stop this broker and let it copy the metadata of another one"
Owned = tuple[VhostName, str, str]
"""A virtual host, `queue` or `exchange`, and a name."""


@dataclass(slots=True)
class Session:
    """The answers to requests of a boot, by their numbers; below `answered_below` they are forgotten."""

    answered_below: int = 0
    answers: dict[int, MetaAnswer] = field(default_factory=dict)


class Watcher(Protocol):
    """Hears of each change once it is applied to the state."""

    def changed(self, change: MetaChange, for_engine: Sequence[Change], /) -> None:
        """Take a change, and what an engine with the topology before needs for it, in this order. It must not fail."""


class MetaState:
    """Everything that the cluster's brokers agree on.

    Invariants: each broker's session is in `sessions`, and no other is; the owner of a volatile thing is a session; a
    shard is placed if and only if its virtual host has it, and all shards of a virtual host on the same brokers.
    """

    def __init__(self) -> None:
        self.position = 0
        """The position of the last record that was applied."""
        self.vhosts: dict[VhostName, VhostTopology] = {}
        self.users = Users()
        self.user_limits: dict[str, Limits] = {}
        self.brokers: dict[BrokerName, BrokerPut] = {}
        self.sessions: dict[int, Session] = {}
        self.next_session = 1
        self.next_vhost = 1
        self.numbers: dict[VhostName, int] = {}
        """The number of each virtual host."""
        self.replica_count = 3
        self.placement: dict[str, tuple[BrokerName, ...]] = {}
        self.volatile: dict[Owned, int] = {}
        """The session with which a thing ends that no file stores."""
        self.watcher: Watcher | None = None

    def finish(self, record: Record, position: int) -> None:
        """Note the answer of a record whose changes are applied."""
        session = self.sessions.get(record.session)
        if session is not None:
            session.answers[record.number] = record.answer
            session.answered_below = max(session.answered_below, record.answered_below)
            for number in [number for number in session.answers if number < session.answered_below]:
                del session.answers[number]
        self.position = position

    def apply(self, record: Record, position: int) -> None:
        """Apply a record. Raises StorageError for one that does not fit."""
        for change in record.changes:
            self.change(change)
        self.finish(record, position)

    def change(self, change: MetaChange) -> None:
        """Apply one change of a record. Raises StorageError for one that does not fit."""
        for_engine: list[Change] = []
        match change:
            case UserPut() | UserDeleted() | UserLimitsSet():
                self._change_users(change)
            case BrokerPut() | BrokerRemoved() | SessionsCounted() | ReplicaCountSet() | ShardPlaced():
                self._change_brokers(change)
            case _:
                self._change_vhosts(change, for_engine if self.watcher is not None else None)
        if self.watcher is not None:
            self.watcher.changed(change, for_engine)

    @property
    def has_begun(self) -> bool:
        """Whether the cluster has its first user and virtual host, and with them its first brokers."""
        return bool(len(self.users) or self.numbers)

    def check_invariants(self) -> None:
        sessions = {broker.session for broker in self.brokers.values() if broker.session}
        assert sessions == self.sessions.keys()
        assert all(0 < number < self.next_session for number in sessions)
        assert set(self.volatile.values()) <= sessions
        owned = {owned for name, vhost in self.vhosts.items() for owned in _volatile_things(name, vhost)}
        assert owned == self.volatile.keys()
        assert self.numbers.keys() == self.vhosts.keys()
        assert all(0 < number < self.next_vhost for number in self.numbers.values())
        shards = {shard for name in self.vhosts for shard in self.shards_of(name)}
        assert shards == self.placement.keys()
        assert all(len({self.placement[shard] for shard in self.shards_of(name)}) == 1 for name in self.vhosts)
        for vhost in self.vhosts.values():
            vhost.check_invariants()

    def shards_of(self, vhost: VhostName) -> list[str]:
        """Return the names of a virtual host's shards."""
        return [shard_name(vhost, shard, self.numbers[vhost]) for shard in range(self.vhosts[vhost].shard_count)]

    def _change_vhosts(
        self,
        change: VhostCreated | VhostDeleted | VhostGrown | VhostChanged | VhostCounted,
        for_engine: list[Change] | None,
    ) -> None:
        if isinstance(change, VhostCreated):
            _fits(change.name not in self.vhosts, f"vhost '{change.name}' is created twice")
            self.vhosts[change.name] = VhostTopology(change.name)
            self.vhosts[change.name].shard_count = change.shard_count
            self.numbers[change.name] = change.number
            self.next_vhost = max(self.next_vhost, change.number + 1)
            return
        name = change.name if isinstance(change, VhostDeleted | VhostGrown) else change.vhost
        _fits(name in self.vhosts, f"vhost '{name}' is changed without having been created")
        vhost = self.vhosts[name]
        match change:
            case VhostDeleted():
                self._delete_vhost(vhost)
            case VhostGrown(_, shard_count):
                vhost.shard_count = shard_count
            case VhostCounted(_, next_queue_id, put_count):
                vhost.next_queue_id, vhost.put_count = next_queue_id, put_count
            case VhostChanged(_, session, entries):
                for entry in entries:
                    problem = apply_entry(vhost, entry, for_engine)
                    _fits(problem is None, problem or "")
                    note_volatile(self.volatile, name, session, entry)

    def _delete_vhost(self, vhost: VhostTopology) -> None:
        for shard in self.shards_of(vhost.vhost):
            self.placement.pop(shard, None)
        del self.vhosts[vhost.vhost], self.numbers[vhost.vhost]
        self.users = self.users.without_vhost(vhost.vhost).settled()
        self.volatile = {owned: session for owned, session in self.volatile.items() if owned[0] != vhost.vhost}

    def _change_users(self, change: UserPut | UserDeleted | UserLimitsSet) -> None:
        match change:
            case UserPut(record):
                self.users = self.users.with_user(user_of(Path("users.json"), record)).settled()
            case UserDeleted(name):
                _fits(self.users.find(name) is not None, f"user '{name}' is deleted without having been added")
                self.users = self.users.delete(name, force=True).settled()
                self.user_limits.pop(name, None)
            case UserLimitsSet(user, limits):
                self.user_limits.pop(user, None)
                if limits != NO_LIMITS:
                    self.user_limits[user] = limits

    def _change_brokers(
        self, change: BrokerPut | BrokerRemoved | SessionsCounted | ReplicaCountSet | ShardPlaced
    ) -> None:
        match change:
            case BrokerPut(broker, _, session):
                before = self.brokers.get(broker)
                if before is not None and before.session != session:
                    self.sessions.pop(before.session, None)
                if session:
                    self.sessions.setdefault(session, Session())
                    self.next_session = max(self.next_session, session + 1)
                self.brokers[broker] = change
            case BrokerRemoved(broker):
                _fits(broker in self.brokers, f"broker '{broker}' is removed without having joined")
                self.sessions.pop(self.brokers.pop(broker).session, None)
            case SessionsCounted(next_session, next_vhost):
                self.next_session, self.next_vhost = next_session, next_vhost
            case ReplicaCountSet(count):
                self.replica_count = count
            case ShardPlaced(shard, brokers):
                self.placement[shard] = brokers


def changes_of(state: MetaState) -> Iterator[MetaChange]:
    """Yield the changes that lead from an empty state to this one, but for answers."""
    yield ReplicaCountSet(state.replica_count)
    for name, vhost in state.vhosts.items():
        yield VhostCreated(name, vhost.shard_count, state.numbers[name])
        yield from _entries_by_session(state, vhost)
        yield VhostCounted(name, vhost.next_queue_id, vhost.put_count)
    for record in records_of(state.users):
        yield UserPut(record)
    yield from (UserLimitsSet(user, limits) for user, limits in state.user_limits.items())
    yield from state.brokers.values()
    yield SessionsCounted(state.next_session, state.next_vhost)
    yield from (ShardPlaced(shard, brokers) for shard, brokers in state.placement.items())


def _entries_by_session(state: MetaState, vhost: VhostTopology) -> Iterator[VhostChanged]:
    """Yield the entries of a topology, each with the session that its thing ends with, 0 if it stays."""
    session, entries = 0, list[Entry]()
    for entry in all_entries_of(vhost):
        owner = _owner_of(state.volatile, vhost.vhost, entry)
        if owner != session and entries:
            yield VhostChanged(vhost.vhost, session, tuple(entries))
            entries = []
        session = owner
        entries.append(entry)
    if entries:
        yield VhostChanged(vhost.vhost, session, tuple(entries))


def _owner_of(volatile: Mapping[Owned, int], vhost: VhostName, entry: Entry) -> int:
    match entry:
        case PersistQueue(queue):
            return volatile.get((vhost, "queue", queue.name), 0)
        case PersistExchange(exchange):
            return volatile.get((vhost, "exchange", exchange.name), 0)
    return 0


def _volatile_things(name: VhostName, vhost: VhostTopology) -> Iterator[Owned]:
    yield from ((name, "queue", queue.name) for queue in vhost.queues.values() if not queue.is_persistent)
    yield from ((name, "exchange", each.name) for each in vhost.exchanges.values() if not each.is_persistent)


def note_volatile(volatile: MutableMapping[Owned, int], vhost: VhostName, session: int, entry: Entry) -> None:
    """Note with which session a thing ends that no file stores."""
    match entry:
        case PersistQueue(queue) if not queue.is_persistent:
            volatile[vhost, "queue", queue.name] = session
        case PersistExchange(exchange) if not exchange.is_persistent:
            volatile[vhost, "exchange", exchange.name] = session
        case PersistQueueDeleted(name):
            volatile.pop((vhost, "queue", name), None)
        case PersistExchangeDeleted(name):
            volatile.pop((vhost, "exchange", name), None)


def shard_name(vhost: VhostName, shard: int, number: int) -> str:
    """Return the name of a virtual host's shard at the coordinator.

    It has the number of the virtual host, because the record of one that was deleted stays there.
    """
    return f"{directory_name(vhost)}.{shard}.{number}"


def _fits(is_so: bool, problem: str) -> None:
    if not is_so:
        raise StorageError(Thing("log", "meta"), f"has a record that does not fit those before it: {problem}", _WAY_OUT)
