"""All virtual hosts of a cluster, as this broker has applied them.

Creating and deleting one are commands to the metadata. Each change that is applied is heard here: it makes or removes a
virtual host, opens its replica, or reaches the queues in the engine.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from penstock.cluster.host import ClusterHost
from penstock.cluster.meta.changes import (
    MetaChange,
    ShardPlaced,
    UserDeleted,
    UserLimitsSet,
    UserPut,
    VhostChanged,
    VhostCreated,
    VhostDeleted,
    VhostGrown,
)
from penstock.cluster.meta.commands import CreateVhost, DeleteVhost
from penstock.cluster.record import BrokerName
from penstock.kit.tasks import spawn
from penstock.metadata.effects import (
    Change,
    Done,
    Entry,
    PersistExchange,
    PersistExchangeDeleted,
    PersistLimits,
    PersistQueue,
)
from penstock.model.errors import FaultError, NotFoundError, Thing
from penstock.model.names import ConnectionId, VhostName
from penstock.native import VhostCounts
from penstock.node.in_cluster.metadata import Metadata
from penstock.node.in_cluster.owner import ClusterOwner
from penstock.node.in_cluster.replica import VhostPlace, VhostReplica
from penstock.node.in_cluster.shard_replica import ReplicaSurroundings
from penstock.services.events import Event, Events, LimitsChanged, PermissionsChanged, TopologyChanged
from penstock.storage import DataDirectory
from penstock.vhost import creation
from penstock.vhost.rights import Rights
from penstock.vhost.vhost import Vhost


@dataclass(slots=True)
class _Entry:
    vhost: Vhost
    owner: ClusterOwner
    replica: VhostReplica
    running: asyncio.Task[None]
    shards: list[str]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The parts that all virtual hosts of the broker share."""

    host: ClusterHost
    replicas: ReplicaSurroundings
    directory: DataDirectory
    metadata: Metadata
    events: Events
    make_token: Callable[[], str]


class ClusterVhosts:
    """Implements `vhost.all_vhosts.AllVhosts` and `meta.state.Watcher`.

    Invariant: from `begin` on, there is an entry for each virtual host of the state whose shard is placed.
    """

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self.kept_below = 0
        """The virtual hosts of the last `keep` have numbers below this one."""
        self.kept_shards: dict[VhostName, int] = {}
        """The number of their shards."""
        self._entries: dict[VhostName, _Entry] = {}
        self._of_shard: dict[str, VhostName] = {}
        self._emitting: set[Event] = set()

    async def begin(self) -> None:
        """Take in the virtual hosts that there are, and hear of all changes. Return when their logs are open."""
        state = self._around.metadata.state
        for name in state.vhosts:
            self._take_in(name)
        state.watcher = self
        for entry in list(self._entries.values()):
            await entry.replica.opened()

    # ------------------------------------------------------------ reading

    def get(self, name: VhostName) -> Vhost:
        entry = self._entries.get(name)
        if entry is None:
            raise NotFoundError(Thing("vhost", name), "create it first or check the name")
        return entry.vhost

    def all(self) -> list[Vhost]:
        return [entry.vhost for entry in self._entries.values()]

    def owner_of(self, name: VhostName) -> ClusterOwner | None:
        entry = self._entries.get(name)
        return None if entry is None else entry.owner

    def by_name(self) -> Mapping[VhostName, Vhost]:
        return {name: entry.vhost for name, entry in self._entries.items()}

    def names(self) -> list[VhostName]:
        return list(self._entries)

    async def totals(self) -> Mapping[VhostName, VhostCounts]:
        """Return the messages in each virtual host, as its leader says."""
        found: dict[VhostName, VhostCounts] = {}
        asked: dict[BrokerName, list[VhostName]] = {}
        for name, entry in self._entries.items():
            with suppress(FaultError):
                own = entry.owner.own_totals()
                if own is not None:
                    found[name] = own
                elif (leader := entry.owner.other_leader_now()) is not None:
                    asked.setdefault(leader, []).append(name)
        totals_of = self._around.metadata.totals_of
        for answer in await asyncio.gather(*(totals_of(leader, names) for leader, names in asked.items())):
            found |= answer
        return found

    # ------------------------------------------------------------ changing

    async def create(
        self, rights: Rights, name: str, shard_count: int = 1, default_queue_type: str | None = None
    ) -> bool:
        """Return whether it is new. One that exists only gets the default queue type, if one is given."""
        return await creation.create(self, rights, name, shard_count, default_queue_type)

    async def make(self, name: VhostName, shard_count: int = 1) -> bool:
        answer = await self._around.metadata.submit(CreateVhost(name, shard_count))
        return isinstance(answer, Done) and bool(answer.count)

    async def set_shard_count(self, rights: Rights, name: VhostName, shard_count: int) -> None:
        """Add shards. Raises RefusedError for a smaller number, and UnknownOutcomeError."""
        rights.require_administrator(Thing("vhost", name))
        await self.get(name).grow(shard_count)

    async def delete(self, rights: Rights, name: VhostName) -> None:
        rights.require_administrator(Thing("vhost", name))
        await self._around.metadata.submit(DeleteVhost(name))

    @contextmanager
    def keep(self) -> Iterator[list[Vhost]]:
        """Yield all virtual hosts. Other brokers may delete them: then their files are gone, and the backup fails."""
        state = self._around.metadata.state
        self.kept_below = state.next_vhost
        self.kept_shards = {name: vhost.shard_count for name, vhost in state.vhosts.items()}
        yield self.all()

    def release(self, name: VhostName) -> None:
        """Do nothing: no virtual host is kept."""

    async def connection_closed(self, connection: ConnectionId) -> None:
        concerned = [vhost for vhost in self.all() if vhost.may_have_queues_of(connection)]
        await asyncio.gather(*(vhost.connection_closed(connection) for vhost in concerned))

    async def delete_producers_of(self, user: str) -> None:
        """Delete the producers that a user owns where this broker leads. The other brokers do so, too."""
        for entry in list(self._entries.values()):
            with suppress(FaultError):
                await entry.vhost.streams.delete_producers_of(user)

    # ------------------------------------------------------------ what is applied

    def changed(self, change: MetaChange, for_engine: Sequence[Change]) -> None:
        """Act on a change of the metadata that is applied. It does not wait."""
        match change:
            case ShardPlaced(shard, brokers):
                self._place(shard, brokers)
            case VhostGrown(name) if name in self._entries:
                self._grow(self._entries[name], name)
            case VhostDeleted(name):
                self._forget(name)
                self._emit(TopologyChanged(name), LimitsChanged(vhost=name), PermissionsChanged(vhost=name))
            case VhostChanged(name, entries=entries) if name in self._entries:
                self._entries[name].replica.take(for_engine)
                self._emit(*_events_of(name, entries))
            case UserDeleted(name):
                self._emit(PermissionsChanged(name), LimitsChanged(user=name))
                spawn(self.delete_producers_of(name), name="producers of a deleted user")
            case UserPut(user):
                self._emit(PermissionsChanged(user.name))
            case UserLimitsSet(user):
                self._emit(LimitsChanged(user=user))
            case VhostCreated() | VhostGrown():
                pass  # its shards are placed next

    async def applied(self, name: VhostName) -> None:
        """Return when the queues of a virtual host have what is applied, if this broker leads it."""
        entry = self._entries.get(name)
        if entry is not None:
            await entry.owner.applied()

    async def leave(self, name: VhostName) -> None:
        """End the use of a virtual host whose directory is about to be deleted."""
        entry = self._entries.get(name)
        if entry is not None:
            await self._end(entry, "it was deleted")

    async def close(self) -> None:
        """Let other brokers lead, and end the use of all virtual hosts. The clients are gone already."""
        self._around.metadata.state.watcher = None
        await asyncio.gather(*(entry.replica.hand_over() for entry in self._entries.values()))
        for entry in list(self._entries.values()):
            await entry.vhost.close("the broker stops")
            await _ended(entry.running)

    # ------------------------------------------------------------ parts

    def _place(self, shard: str, brokers: Sequence[BrokerName]) -> None:
        """Take in the virtual host of a new shard, or tell its replica which brokers are to have one."""
        name = self._of_shard.get(shard)
        if name is None:
            self._take_in_new()
        else:
            self._entries[name].replica.place(brokers)

    def _grow(self, entry: _Entry, name: VhostName) -> None:
        entry.shards = self._around.metadata.state.shards_of(name)
        self._of_shard |= dict.fromkeys(entry.shards, name)
        entry.replica.grow(entry.shards)

    def _forget(self, name: VhostName) -> None:
        entry = self._entries.pop(name, None)
        if entry is not None:
            for shard in entry.shards:
                del self._of_shard[shard]

    def _take_in_new(self) -> None:
        for name in self._around.metadata.state.vhosts:
            if name not in self._entries:
                self._take_in(name)

    def _take_in(self, name: VhostName) -> None:
        around, state = self._around, self._around.metadata.state
        shards = state.shards_of(name)
        # All shards have the same brokers, and the first one is placed first.
        place = VhostPlace(name, shards, around.directory.vhost_directory(name), state.placement.get(shards[0], ()))
        replica = VhostReplica(around.replicas, place)
        owner = replica.owner = ClusterOwner(state.vhosts[name], around.metadata, replica)
        running = spawn(replica.run(around.metadata, self._leads), name=f"replica of vhost {name}")
        self._entries[name] = _Entry(Vhost(owner, around.make_token), owner, replica, running, shards)
        self._of_shard |= dict.fromkeys(shards, name)

    def _leads(self, name: VhostName) -> None:
        """Have open streams ask again: they begin or end with a term."""
        self._emit(TopologyChanged(name), PermissionsChanged(vhost=name))

    async def _end(self, entry: _Entry, cause: str) -> None:
        await entry.vhost.close(cause)
        await _ended(entry.running)
        await entry.replica.close()

    def _emit(self, *events: Event) -> None:
        """Emit events soon, once for all changes that are applied together."""
        if events and not self._emitting:
            asyncio.get_running_loop().call_soon(self._emit_now)
        self._emitting.update(events)

    def _emit_now(self) -> None:
        emitting, self._emitting = self._emitting, set()
        self._around.events.emit(*emitting)


def _events_of(vhost: VhostName, entries: Sequence[Entry]) -> Iterator[Event]:
    """Yield the events of entries: a publisher may have learned otherwise of an exchange or a stream."""
    for entry in entries:
        match entry:
            case PersistExchange() | PersistExchangeDeleted():
                yield TopologyChanged(vhost)
            case PersistQueue(queue) if queue.is_stream:
                yield TopologyChanged(vhost)
            case PersistLimits():
                yield LimitsChanged(vhost=vhost)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
