"""The node of this broker in its event loop: its reports go to replicas and calls, its questions to the coordinator.

Safety does not rest on this module: a question that is not answered is asked again, and a change without an answer has
an unknown outcome. It decides nothing but how many replicas of a new shard have to be in sync.
"""

import asyncio
import secrets
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from penstock.cluster.coordinator import Coordinator, Refused, Version, Versioned
from penstock.cluster.early import EarlyMessages
from penstock.cluster.gathering import in_sync_in_all, leader_of_all
from penstock.cluster.heirs import heirs
from penstock.cluster.hosted import HostedReplica
from penstock.cluster.record import BrokerName, Leader, Recovery, ReplicaId, ShardRecord
from penstock.cluster.seats import draw_epoch, first_record, with_majority
from penstock.cluster.shard_calls import HandOver
from penstock.cluster.translation import Translation, shard_id
from penstock.kit.logging import logger
from penstock.kit.tasks import spawn
from penstock.model.errors import StorageError
from penstock.native import (
    AppendEnded,
    ChangeAsked,
    ClusterNode,
    LogReplaced,
    NodeNotice,
    PeerChanged,
    PeerMessage,
    ReadAsked,
    RecordsCommitted,
    ReplicaFailed,
    RoleChanged,
    Server,
)

FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
"""The largest message between brokers. A record of the metadata has to fit into one."""
RETRY_S: Final = 0.5
"""The time until a watch that failed begins anew."""
HAND_OVER_S: Final = 2.0
"""A broker that stops waits for this time until another one leads."""
_log = logger("cluster")


@dataclass(frozen=True, slots=True)
class Member:
    """A process of a broker in a cluster."""

    cluster: bytes
    """The cluster's id of 16 bytes."""
    name: BrokerName
    boot: int


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """How the log of a replica is opened."""

    segment_bytes_min: int = 1024 * 1024
    segment_bytes_max: int = 64 * 1024 * 1024
    page_cache_lost: bool = False
    disk_free_bytes_min: int = 0
    has_queues: bool = True
    """The node folds the logs of queues by itself."""
    order: int = 0
    """Shards with the same number are mostly led by one broker."""


class PeerReceiver(Protocol):
    """Takes the messages of other brokers about a shard."""

    def received(self, broker: int, content: bytes) -> None: ...
    def disconnected(self, broker: int) -> None: ...
    def deposed(self, broker: int) -> None: ...


class ClusterHost:
    """It runs from `start` to `stop`, which closes the node.

    Invariant: `_records` has the record of each open shard that was watched or read last.
    """

    def __init__(self, node: ClusterNode, coordinator: Coordinator, me: Member) -> None:
        self.me = me
        self.translation = Translation()
        self.draining: frozenset[BrokerName] = frozenset()
        """Brokers that are to lead nothing, as far as others can."""
        self._node = node
        self._coordinator = coordinator
        self._yields = False
        self._is_closed = False
        self._shards: dict[bytes, str] = {}
        self._groups: dict[bytes, tuple[bytes, ...]] = {}
        """The shards of a virtual host that are led together, for each of them that is not alone."""
        self._replicas: dict[bytes, HostedReplica] = {}
        self._receivers: dict[bytes, PeerReceiver] = {}
        self._early = EarlyMessages()
        self._records: dict[bytes, Versioned] = {}
        self._leaders: dict[bytes, int] = {}
        """The broker that led each shard at the last look."""
        self._connected: set[int] = set()
        self._watches: dict[bytes, asyncio.Task[None]] = {}
        self._foundations: dict[bytes, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._number = self.translation.number_of(me.name)

    @property
    def address(self) -> str:
        return self._node.address

    def used_protocol(self) -> int:
        """Return the newest version of the protocol between brokers that all of them are known to have."""
        return self._node.used_protocol

    def start(self) -> None:
        asyncio.get_running_loop().add_reader(self._node.wake_fd, self._take)

    async def stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._node.wake_fd)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for replica in self._replicas.values():
            replica.close()
        self._is_closed = True
        await asyncio.to_thread(self._node.close)

    def set_peer(self, broker: BrokerName, address: str) -> None:
        self._node.set_peer(self.translation.number_of(broker), address, broker)

    def forget_peer(self, broker: BrokerName) -> None:
        """Make no connection to a broker any more, which is not of the cluster."""
        self._node.forget_peer(self.translation.number_of(broker))

    def relay_clients(self, server: Server) -> None:
        """Relay the clients of the listeners to the brokers that lead, and serve the clients that others relay."""
        self._node.relay_clients(server)

    def relays(self) -> dict[str, float]:
        """Return the relays from and to this broker, by names of metrics; none once the node is closed."""
        return {} if self._is_closed else self._node.metrics()

    def set_secrets(self, secrets: Sequence[str]) -> None:
        """Show the first secret on new connections, and accept all of them."""
        self._node.set_secrets(list(secrets))

    def session(self, broker: str, *, is_alive: bool) -> None:
        """Say that the session of a broker has ended, or that it is alive again."""
        self._node.session(self.translation.number_of(broker), is_alive)

    async def set_yields(self, *, yields: bool) -> None:
        """Leave it to other brokers to lead when a leader is gone, as far as they do so soon."""
        if yields != self._yields:
            self._yields = yields
            await asyncio.to_thread(self._node.set_yields, yields)

    async def open(
        self,
        shard: str,
        directory: Path,
        options: ReplicaOptions,
        founders: Sequence[BrokerName] = (),
        found_after_s: float = 0.0,
    ) -> HostedReplica:
        """Open the replica of a shard. Raises StorageError.

        With `founders`, which are the brokers of a new shard, its record is made after a time if there is none and this
        replica is blank.
        """
        key = shard_id(self.me.cluster, shard)
        self._shards[key] = shard
        await asyncio.to_thread(directory.mkdir, mode=0o700, exist_ok=True)
        native = await asyncio.to_thread(
            partial(
                self._node.open,
                key,
                str(directory),
                new_replica=_draw(),
                segment_bytes_min=options.segment_bytes_min,
                segment_bytes_max=options.segment_bytes_max,
                page_cache_lost=options.page_cache_lost,
                disk_free_bytes_min=options.disk_free_bytes_min,
                has_queues=options.has_queues,
                order=options.order,
            )
        )
        replica = self._replicas[key] = HostedReplica(native, key)
        standing = await replica.standing()  # reports before this one may have been dropped
        replica.take_standing(standing)
        if founders and not standing.end:
            self._foundations[key] = self._spawn(self._found(replica, founders, found_after_s), "foundation")
        self._watches[key] = self._spawn(self._watch(key, shard), "watch")
        return replica

    async def close(self, replica: HostedReplica) -> None:
        """Close a replica for good: its files may be deleted then."""
        key = replica.shard
        for tasks in (self._watches, self._foundations):
            task = tasks.pop(key, None)
            if task is not None:
                task.cancel()
        for kept in (self._replicas, self._records, self._receivers, self._leaders):
            kept.pop(key, None)
        replica.close()
        await asyncio.to_thread(self._node.close_replica, key)
        self._shards.pop(key, None)

    def group(self, shards: Sequence[str]) -> None:
        """Hear the shards of a virtual host, in their order: one broker is to lead all of them."""
        keys = tuple(shard_id(self.me.cluster, shard) for shard in shards)
        if len(keys) > 1:
            self._groups |= dict.fromkeys(keys, keys)

    def ungroup(self, shards: Sequence[str]) -> None:
        """Forget a virtual host."""
        for shard in shards:
            self._groups.pop(shard_id(self.me.cluster, shard), None)

    async def place(self, replica: HostedReplica, brokers: Sequence[BrokerName]) -> None:
        """Have a replica, while it leads, bring in these brokers one after the other, and take the others out."""
        await replica.place([self.translation.number_of(broker) for broker in brokers])

    async def resign(self, replica: HostedReplica, to: BrokerName | None = None) -> HandOver:
        """Let the replica of a broker lead, or any in sync, if this one leads. Return when it does, or after a time.

        With the first shard of a group this broker hands over the others, and does not wait for them.
        """
        if replica.role.epoch is None:
            return HandOver.NOT_LEADING
        heir = await self.hand_over(replica.shard, to)
        if heir is None:
            return HandOver.NO_HEIR
        with suppress(TimeoutError):
            async with asyncio.timeout(HAND_OVER_S):
                while replica.role.epoch is not None:
                    await replica.changed.wait()
                first, *further = self._groups.get(replica.shard, (replica.shard,))
                for shard in further if first == replica.shard else ():
                    await self.hand_over(shard, heir)
                return HandOver.DONE
        return HandOver.NOT_TAKEN

    def receive(self, shard: bytes, receiver: PeerReceiver) -> None:
        """Choose who takes the messages of other brokers about a shard, also the earlier ones."""
        self._receivers[shard] = receiver
        for message in self._early.take(shard):
            receiver.received(message.broker, message.content)

    def send(self, shard: bytes, broker: int, content: bytes) -> bool:
        """Send a message about a shard to the broker of a number, and return whether that is connected."""
        return self._node.send(broker, shard, content)

    def known_record(self, shard: str) -> ShardRecord | None:
        """Return the record of a shard as it was watched or read last; None where there is no replica of it here."""
        found = self._records.get(shard_id(self.me.cluster, shard))
        return None if found is None else found.record

    async def read_record(self, shard: str) -> ShardRecord | None:
        """Return the record of a shard as the coordinator has it now. Raises StorageError."""
        found = await self.read_versioned(shard)
        return None if found is None else found.record

    async def read_versioned(self, shard: str) -> Versioned | None:
        """Do the same, with the version. Raises StorageError."""
        return await self._coordinator.read(shard)

    async def replace_record(self, shard: str, base: Version | None, record: ShardRecord) -> Version | Refused:
        """Replace the record of a shard if it has a version, or make it where there is none. Raises StorageError.

        Only for a choice that an operator makes: replicas change their records by themselves.
        """
        return await self._coordinator.change(shard, base, record)

    def hosted(self, shard: str) -> HostedReplica | None:
        """Return the open replica of a shard."""
        return self._replicas.get(shard_id(self.me.cluster, shard))

    def leader_of(self, shard: bytes) -> tuple[int, int] | None:
        """Return the number of the broker that leads a shard, and its epoch, as far as they are known here.

        A replica may hear a new leader before the record of that is watched.
        """
        found, replica = self._records.get(shard), self._replicas.get(shard)
        heard = None if replica is None else replica.role.follows
        if heard is not None and (found is None or heard.epoch > found.record.epoch):
            return heard.broker, heard.epoch
        if found is None:
            return None
        return self.translation.number_of(found.record.leader.broker), found.record.epoch

    def leader_name(self, shard: bytes) -> BrokerName | None:
        """Return the broker that leads a shard: None where none is known that is connected."""
        found = self.leader_of(shard)
        if found is None:
            return None
        number, _ = found
        is_reached = number in (self._number, *self._connected)
        return self.translation.known_name(number) if is_reached else None

    def is_connected(self, broker: BrokerName) -> bool:
        """Return whether this broker has a connection to another one."""
        return self.translation.number_of(broker) in self._connected

    def epoch_of(self, shard: bytes) -> int | None:
        """Return the epoch of a shard that this broker leads; None where it does not lead."""
        replica = self._replicas.get(shard)
        return None if replica is None else replica.role.epoch

    async def hand_over(self, shard: bytes, to: BrokerName | None = None) -> BrokerName | None:
        """Ask a replica in sync to lead a shard: that of a broker, or any, which is the same for all shards of a group.

        Return its broker; None if there is none, or this broker does not lead. One that is drained is asked if there is
        no other.
        """
        replica = self._replicas.get(shard)
        if replica is None or self.epoch_of(shard) is None:
            return None
        able = self.heirs_of(shard)
        if to is None and shard in self._groups and able:
            records, kept = self._records_of_group(shard), set(able.values()) - self.draining or set(able.values())
            to = leader_of_all(records, {broker for each in records for broker in each.replicas.values()} - kept)
        wanted = [each for each, broker in able.items() if to in (None, broker)]
        kept_replicas = [each for each in wanted if able[each] not in self.draining]
        if not wanted:
            return None
        chosen = secrets.choice(kept_replicas or wanted)
        await replica.hand_over(chosen)
        return able[chosen]

    def heirs_of(self, shard: bytes) -> Mapping[ReplicaId, BrokerName]:
        """Return the replicas that may lead a shard in place of this broker's, with their brokers.

        They are in sync in all shards that are led together with it, as far as those are known.
        """
        found = self._records.get(shard)
        if found is None:
            return {}
        able = in_sync_in_all(self._records_of_group(shard))
        others = heirs(found.record, self.me.name, self.is_connected)
        return {replica: broker for replica, broker in others.items() if broker in able}

    def leader_of_group(self, shard: bytes) -> BrokerName | None:
        """Return the broker that is to lead all shards of a group; None where none can, or not all are known."""
        records = self._records_of_group(shard)
        is_whole = len(records) == len(self._groups.get(shard, (shard,)))
        return leader_of_all(records, self.draining) if is_whole else None

    def epochs_of_group(self, shard: bytes) -> tuple[int, ...]:
        """Return the epochs of the shards of a group, as far as they are known."""
        return tuple(record.epoch for record in self._records_of_group(shard))

    def _records_of_group(self, shard: bytes) -> list[ShardRecord]:
        """Return the known records of the shards that are led together with one."""
        found = (self._records.get(each) for each in self._groups.get(shard, (shard,)))
        return [each.record for each in found if each is not None]

    def led(self) -> list[HostedReplica]:
        """Return the replicas of this broker that lead. Of shards that are led together only the first one counts."""
        replicas = self._replicas.values()
        return [each for each in replicas if each.role.epoch is not None and self._is_first(each.shard)]

    def _is_first(self, shard: bytes) -> bool:
        return self._groups.get(shard, (shard,))[0] == shard

    def _take(self) -> None:
        for event in self._node.take():
            match event:
                case ReadAsked():
                    self._spawn(self._read(event), "read")
                case ChangeAsked():
                    self._spawn(self._change(event), "change")
                case PeerMessage():
                    self._take_message(event)
                case PeerChanged():
                    self._take_peer(event)
                case NodeNotice(text=text):
                    _log.info("replication", notice=text)
                case _:
                    self._take_of_replica(event)

    def _take_of_replica(
        self, event: RoleChanged | RecordsCommitted | AppendEnded | ReplicaFailed | LogReplaced
    ) -> None:
        replica = self._replicas.get(event.shard)
        if replica is None:
            return
        shard = self._shards[event.shard]
        match event:
            case RoleChanged(role=role):
                if role.halted is not None:
                    _log.error("replica halted", shard=shard, reason=role.halted)
                elif role.epoch != replica.role.epoch:
                    _log.info("replica changed its role", shard=shard, leads_epoch=role.epoch)
                replica.take_role(role)
                self._note_leader(event.shard)
            case RecordsCommitted(below=below):
                replica.take_committed(below)
            case AppendEnded(token=token, is_committed=is_committed):
                replica.take_ended(token, is_committed=is_committed)
            case ReplicaFailed(reason=reason):
                _log.error("replica failed", shard=shard, reason=reason)
            case LogReplaced():
                _log.info("log replaced by a copy of the leader's", shard=shard)
                replica.take_replaced()

    def _take_message(self, message: PeerMessage) -> None:
        receiver = self._receivers.get(message.shard)
        if receiver is None:
            self._early.put(message)
        else:
            receiver.received(message.broker, message.content)

    def _take_peer(self, event: PeerChanged) -> None:
        (self._connected.add if event.is_connected else self._connected.discard)(event.broker)
        if not event.is_connected:
            self._early.forget(event.broker)
            for receiver in self._receivers.values():
                receiver.disconnected(event.broker)

    async def _read(self, event: ReadAsked) -> None:
        """Answer a question for a record. Without an answer the replica asks again."""
        shard = self._shards.get(event.shard)
        if shard is None:
            return
        try:
            found = await self._coordinator.read(shard)
        except StorageError as error:
            _log.warning("coordinator not read", shard=shard, reason=str(error))
            return
        await self._know(event.shard, found, event.read)

    async def _change(self, event: ChangeAsked) -> None:
        shard, base = self._shards.get(event.shard), self.translation.version_of(event.base)
        outcome: Version | Refused = Refused.UNKNOWN
        if shard is not None and base is not None:
            try:
                record = self.translation.record_of(event.record, event.base)
                outcome = await self._coordinator.change(shard, base, record)
            except StorageError as error:
                _log.warning("coordinator not changed", shard=shard, reason=str(error))
        if outcome is Refused.UNKNOWN:
            await asyncio.to_thread(self._node.unanswered, event.shard, event.change)
        elif outcome is Refused.CONFLICT:
            await asyncio.to_thread(self._node.conflicted, event.shard, event.change)
        else:
            if event.shard in self._replicas:  # clients are led by it, and the watch may take a while
                self._note(event.shard, Versioned(record, outcome))
            number = self.translation.version_number(outcome, record.recoveries)
            await asyncio.to_thread(self._node.changed, event.shard, event.change, number)

    async def _watch(self, key: bytes, shard: str) -> None:
        while True:
            try:
                async with aclosing(self._coordinator.watch(shard)) as watch:
                    async for found in watch:
                        await self._know(key, found, None)
                        if not await self._ask_for_majority(shard, found):
                            break  # the watch begins anew with the record as it is then
            except StorageError as error:
                _log.warning("watch of the coordinator ended", shard=shard, reason=str(error))
            await asyncio.sleep(RETRY_S)

    async def _know(self, key: bytes, found: Versioned | None, read: int | None) -> None:
        """Pass a record to the replica, as the answer to a question or as one that was watched."""
        if found is None:
            await asyncio.to_thread(self._node.read, key, read, None)
            return
        self._note(key, found)
        state = self.translation.state_of(found.record)
        version = self.translation.version_number(found.version, found.record.recoveries)
        await asyncio.to_thread(self._node.read, key, read, state, version)

    def _note(self, key: bytes, found: Versioned) -> None:
        """Remember a record.

        An answer may be slower than the watch, and its record one that was changed since.
        """
        before = self._records.get(key)
        if before is not None and before.record.epoch > found.record.epoch:
            return
        self._log_recoveries(key, () if before is None else before.record.recoveries, found.record.recoveries)
        self._records[key] = found
        replica = self._replicas.get(key)
        if replica is not None:
            replica.heard()
        self._note_leader(key)

    def _note_leader(self, key: bytes) -> None:
        """Say that a broker does not lead a shard any more when another one is known to lead."""
        leader, before = self.leader_of(key), self._leaders.get(key)
        if leader is None or before == leader[0]:
            return
        self._leaders[key] = leader[0]
        receiver = self._receivers.get(key)
        if receiver is not None and before is not None:
            receiver.deposed(before)

    def _log_recoveries(self, key: bytes, known: Sequence[Recovery], found: Sequence[Recovery]) -> None:
        for each in found:
            if each not in known:
                _log.error(
                    "shard recovered by an operator: confirmed messages may be lost",
                    shard=self._shards.get(key),
                    broker=each.broker,
                    by=each.by,
                    at_ms=each.at_ms,
                    epoch=each.epoch,
                    end=each.end,
                )

    async def _ask_for_majority(self, shard: str, found: Versioned) -> bool:
        """Let a majority be in sync from now on, if this broker leads and so many are.

        Return False when the outcome is unknown. Nothing is lost then, but until the next time one broker may confirm
        alone. After a conflict the watch has another record.
        """
        leader, wanted = found.record.leader, with_majority(found.record)
        if wanted is None or (leader.broker, leader.boot) != (self.me.name, self.me.boot):
            return True
        return await self._coordinator.change(shard, found.version, wanted) is not Refused.UNKNOWN

    async def _found(self, replica: HostedReplica, founders: Sequence[BrokerName], after_s: float) -> None:
        """Make the record of a new shard. Another broker may be faster."""
        shard = self._shards[replica.shard]
        await asyncio.sleep(after_s)
        leader = Leader(broker=self.me.name, replica=replica.replica, boot=0)
        record: ShardRecord = first_record(leader, founders, _draw, draw_epoch())
        while True:
            try:
                if await self._coordinator.read(shard) is not None:
                    return
                await self._coordinator.change(shard, None, record)
            except StorageError as error:
                _log.warning("shard not made", shard=shard, reason=str(error))
            await asyncio.sleep(RETRY_S)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = spawn(work, name=f"cluster {name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _draw() -> ReplicaId:
    return secrets.token_hex(16)
