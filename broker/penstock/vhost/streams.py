"""The verbs of streams: declare and delete a stream, return its offsets, and manage its consumer groups.

Verbs that may read from the disk run on a thread; a stream that is deleted meanwhile is refused like one that never
existed.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, NamedTuple

from penstock.kit.settings import PAGE_SIZE_MAX
from penstock.metadata import streams as rules
from penstock.metadata.argument_table import PARTITIONS_MAX
from penstock.metadata.commands import DeclareStream, DeleteStream
from penstock.metadata.effects import StreamDeclared
from penstock.metadata.topology import VhostTopology
from penstock.model.arguments import Arguments
from penstock.model.errors import AccessRefusedError, InvalidArgumentError, NotFoundError, Thing
from penstock.model.names import QueueId, QueueName, check_name, is_reserved
from penstock.model.records import X_QUEUE_TYPE, Access, Queue
from penstock.native import GroupState, ProducerSequences, ProducerState, Replica, Shard, StreamState
from penstock.vhost.ports import VhostOwner
from penstock.vhost.rights import Rights

PRODUCERS_PAGE_MAX: Final = 1_000
PARTS_MAX: Final = 4_096
"""Partitions that one question describes."""
NO_STATE: Final = StreamState()
OWN_PRODUCER_PREFIX: Final = "amq.stage/"
"""Of the names that stages publish under, which go with them."""


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """Where a partition begins and ends; see `StreamState`.

    `stored` is the offset of the group that was asked for, if it has stored one.
    """

    name: QueueName
    state: StreamState
    at_timestamp: int | None = None
    queue_id: QueueId = QueueId(0)  # noqa: RUF009 - a plain number
    stored: int | None = None


@dataclass(frozen=True, slots=True)
class StreamStatus:
    name: str
    arguments: Arguments
    partitions: tuple[PartitionStatus, ...]


class StreamPart(NamedTuple):
    """A partition, and the name by which its stream was asked for.

    `partition_count` is the declared one, None for a single queue and for a stream that was made by hand.
    """

    stream: str
    status: PartitionStatus
    partition_count: int | None = None


class ReadablePartition(NamedTuple):
    """A partition by the engine's number, and the replica to read it from; None for a reader that is open already."""

    queue_id: QueueId
    replica: Replica | None


class GroupStatus(NamedTuple):
    name: str
    partition: QueueName
    offset: int | None
    lag: int
    reader_count: int


class Streams:
    """Streams of one vhost."""

    def __init__(self, owner: VhostOwner) -> None:
        self._owner = owner
        self._topology: VhostTopology = owner.topology

    # ------------------------------------------------------------ as wholes

    async def declare(self, rights: Rights, command: DeclareStream) -> StreamDeclared:
        """Needs to configure the stream's name and those of all its partitions."""
        rights.require(Access.CONFIGURE, self._whole(command.name, is_partitioned=command.partition_count > 1))
        for partition in _partition_names(command):
            rights.require(Access.CONFIGURE, self._queue(partition))
        outcome = await self._owner.submit(command)
        assert isinstance(outcome.answer, StreamDeclared)
        return outcome.answer

    async def delete(self, rights: Rights, name: str) -> int:
        """Delete a stream and return the number of its messages."""
        is_partitioned = await self._owner.read(lambda: rules.is_partitioned(self._topology, name))
        rights.require(Access.CONFIGURE, self._whole(name, is_partitioned=is_partitioned))
        for partition in await self._owner.read(lambda: rules.partitions(self._topology, name)):
            rights.require(Access.CONFIGURE, self._queue(partition))
        return (await self._owner.submit(DeleteStream(name))).dropped_count

    async def statuses(
        self, rights: Rights, name: str | None = None, *, after: str | None = None, limit: int = PAGE_SIZE_MAX
    ) -> list[StreamStatus]:
        """Return a page in the order of names, beginning after the name `after`.

        The page also ends with the stream that brings its partitions to PAGE_SIZE_MAX. With a name, return only that
        one, which must be there.
        """
        rights.require_entry(Thing("vhost", self._topology.vhost))
        streams = await self._owner.read(lambda: self._found(name, after, min(limit, PAGE_SIZE_MAX)))
        partitions = [queue for _, queues in streams for queue in queues]
        found = {status.name: status for status in await self._states(partitions)}
        return [
            StreamStatus(each, _arguments(queues), tuple(found[queue.name] for queue in queues))
            for each, queues in streams
        ]

    # ------------------------------------------------------------ offsets

    async def offsets(
        self, rights: Rights, name: str, timestamp_ms: int | None, group: str | None = None
    ) -> list[PartitionStatus]:
        """Of all partitions of a stream, or of one partition."""
        rights.require_entry(Thing("vhost", self._topology.vhost))
        queues = await self._owner.read(lambda: self._queues(name))
        stored = await self._owner.read_engine(lambda: self._stored(queues, group))
        return await self._with_offsets_at(await self._states(queues, stored), timestamp_ms)

    async def parts(
        self, rights: Rights, names: Sequence[str], timestamp_ms: int | None, group: str, *, with_states: bool
    ) -> list[StreamPart]:
        """Return the partitions of streams, with the offsets that a group stored.

        Their states may have to be read from the disk. Without `with_states` only those are there which the group
        stored an offset of.
        """
        rights.require_entry(Thing("vhost", self._topology.vhost))
        found = await self._owner.read(lambda: self._parts(names))
        queues = [queue for _, queue in found]
        stored = await self._owner.read_engine(lambda: self._stored(queues, group))
        if with_states or any(offset is not None for offset in stored):
            statuses = await self._states(queues, stored)
        else:
            statuses = [PartitionStatus(queue.name, NO_STATE, None, queue.id) for queue in queues]
        statuses = await self._with_offsets_at(statuses, timestamp_ms)
        counts = {name: rules.declared_count(self._topology, name) for name in names}
        return [StreamPart(stream, status, counts[stream]) for (stream, _), status in zip(found, statuses, strict=True)]

    def stream_of(self, partition: QueueName) -> str:
        """Return the name of the stream that has the partition."""
        exchange = rules.owner_of(self._topology, partition)
        return partition if exchange is None else exchange.name

    async def admit_archive(self, rights: Rights, partition: QueueName, group: str) -> PartitionStatus:
        """Admit a reader of the partition to its archive; return how it stands, with the offset of a group."""
        rights.require(Access.READ, self._queue(partition))
        queue = await self._owner.read(lambda: rules.stream_queue(self._topology, partition))
        stored = await self._owner.read_engine(lambda: self._stored([queue], group))
        return (await self._states([queue], stored))[0]

    async def trim(self, rights: Rights, partition: QueueName, before: int) -> tuple[int, int]:
        """Delete whole sealed segments below an offset.

        Return the number of deleted messages and the new first offset. Needs the permission to delete the partition.
        """
        rights.require(Access.CONFIGURE, self._queue(partition))
        queue = await self._owner.read(lambda: rules.stream_queue(self._topology, partition))
        dropped_count = await self._owner.apart(self._shard.trim_stream, queue.id, before)
        return dropped_count, (await self._states([queue]))[0].state.first

    async def admit_read(self, rights: Rights, partition: QueueName, group: str, *, single_active: bool) -> QueueId:
        """Authorize a reader, and return the engine's number of the partition."""
        rights.require(Access.READ, self._queue(partition))
        if is_reserved(group):
            raise AccessRefusedError(
                Thing("group", group[:64], self._topology.vhost),
                "has a name that starts with 'amq.', which is reserved",
                "choose another name",
            )
        if group:
            self._check_group(group)
        elif single_active:
            raise InvalidArgumentError(
                self._thing(partition),
                "is to be read by a single active reader of no group",
                "name the group whose readers take turns",
                field="group",
            )
        return await self._owner.read_serving(lambda: rules.stream_queue(self._topology, partition).id)

    async def admit_read_of_replica(
        self, rights: Rights, partition: QueueName, *, again: bool
    ) -> ReadablePartition | None:
        """Authorize a reader without a group; return None where this broker leads, or has no replica to read from.

        With `again` the reader is open already, here or at the leader: what it needs of a replica is not asked again.
        """
        rights.require(Access.READ, self._queue(partition))
        try:
            queue = await self._owner.read(lambda: rules.stream_queue(self._topology, partition))
        except NotFoundError:  # the leader may know it already
            return None
        replica = None if again else await self._owner.find_replica(queue.shard)
        return ReadablePartition(queue.id, replica) if again or replica is not None else None

    # ------------------------------------------------------------ groups and producers

    async def store_offset(self, rights: Rights, partition: QueueName, group: str, offset: int) -> None:
        """Store an offset; return when it is on the disk."""
        self._require_group(rights, self._queue(partition), group)
        self._check_group(group)
        queue = await self._owner.read(lambda: rules.stream_queue(self._topology, partition))
        next_ = (await self._states([queue]))[0].state.next
        if offset >= next_:
            raise InvalidArgumentError(
                self._thing(partition),
                f"has no offset {offset} yet: the next message gets {next_}",
                "store the offset of the last message that was read",
                field="offset",
            )
        await self._owner.apart(self._shard.store_offset, queue.id, group, offset)

    async def groups(
        self, rights: Rights, name: str, *, after: tuple[str, str] | None = None, limit: int = PAGE_SIZE_MAX
    ) -> list[GroupStatus]:
        """Return a page of the groups of a stream or of one partition.

        It is in the order of their names and partitions, beginning after a name and partition.
        """
        rights.require_entry(Thing("vhost", self._topology.vhost))
        queues = await self._owner.read(lambda: self._queues(name))
        found = await self._owner.apart(self._groups, await self._states(queues), queues)
        shown = (group for group in found if after is None or (group.name, group.partition) > after)
        return list(islice(shown, min(limit, PAGE_SIZE_MAX)))

    async def delete_group(self, rights: Rights, name: str, group: str) -> bool:
        """Delete a group, and return whether it had stored offsets."""
        rights.require_entry(Thing("vhost", self._topology.vhost))
        self._check_group(group)
        queues = await self._owner.read(lambda: self._queues(name))
        for queue in queues:
            self._require_group(rights, self._queue(queue.name), group)
        deleted = [await self._owner.apart(self._shard.delete_group, queue.id, group) for queue in queues]
        return any(deleted)

    async def producer_sequences(self, rights: Rights, producer: str) -> ProducerSequences | None:
        """Return up to where all is stored, and the highest of any log.

        Raises AccessRefusedError for a name of another user.
        """
        rights.require_entry(Thing("vhost", self._topology.vhost))
        check_name("producer", producer)
        owner, sequences = await self._owner.read_engine(
            lambda: (self._shard.producer_owner(producer), self._shard.producer_sequences(producer))
        )
        if owner is not None and owner != rights.user and not rights.sees_all():
            raise AccessRefusedError(
                Thing("producer", producer[:64], self._topology.vhost), "belongs to another user", "choose another name"
            )
        return sequences

    async def producers(self, rights: Rights, after: str, limit: int) -> list[ProducerState]:
        """Return a page in the order of names, beginning after the name `after`.

        It has at most PRODUCERS_PAGE_MAX producers: the user's own, or all for administrators and monitoring.
        """
        rights.require_entry(Thing("vhost", self._topology.vhost))
        found = await self._owner.apart(self._shard.producers)
        limit = min(limit, PRODUCERS_PAGE_MAX)
        sees_all = rights.sees_all()
        shown = (state for state in found if state.name > after and (sees_all or state.owner == rights.user))
        return heapq.nsmallest(limit, shown, key=lambda state: state.name)

    async def delete_producer(self, rights: Rights, producer: str) -> bool:
        """Delete a producer's name and owner, and return whether it existed.

        For administrators and the user who owns the name. The producer's messages are stored again when they are sent
        again, and another user may take the name.
        """
        rights.require_entry(Thing("vhost", self._topology.vhost))
        if await self._owner.read_engine(lambda: self._shard.producer_owner(producer)) != rights.user:
            rights.require_administrator(Thing("producer", producer[:64], self._topology.vhost))
        if producer.startswith(OWN_PRODUCER_PREFIX):
            return False
        return await self._owner.apart(self._shard.delete_producer, producer)

    async def delete_producers_of(self, user: str) -> None:
        """Delete the names that a deleted user owns, without a check of permissions."""
        await self._owner.apart(self._shard.delete_producers_of, user)

    # ------------------------------------------------------------ for those who watch

    def states_now(self, count_max: int) -> tuple[list[PartitionStatus], list[GroupStatus]]:
        """Return the first partitions by name, and their groups."""
        if self._owner.stopped is not None or self._owner.is_applying or self._shard.is_stalled:
            return [], []
        queues = [self._topology.queues[name] for name in heapq.nsmallest(count_max, self._topology.streams)]
        states = _statuses(queues, self._shard.stream_extents([queue.id for queue in queues]))
        return states, self._groups(states, queues)

    @property
    def partition_count(self) -> int:
        return len(self._topology.streams)

    # ------------------------------------------------------------ parts

    @property
    def _shard(self) -> Shard:
        return self._owner.shard

    def _found(self, wanted: str | None, after: str | None, limit: int) -> list[tuple[str, list[Queue]]]:
        if wanted is not None:
            return [(wanted, self._queues(wanted))]
        found: list[tuple[str, list[Queue]]] = []
        partition_count = 0
        for name in rules.stream_names(self._topology):
            if after is not None and name <= after:
                continue
            if _is_full(len(found), partition_count, limit):
                break
            found.append((name, self._queues(name)))
            partition_count += len(found[-1][1])
        return found

    def _parts(self, names: Sequence[str]) -> list[tuple[str, Queue]]:
        found: list[tuple[str, Queue]] = []
        for name in names:
            found += ((name, queue) for queue in self._queues(name))
            if len(found) > PARTS_MAX:
                raise InvalidArgumentError(
                    self._thing(name),
                    f"is one of streams with more than {PARTS_MAX} partitions together",
                    "name fewer streams",
                    field="streams",
                )
        return found

    def _queues(self, name: str) -> list[Queue]:
        return [self._topology.queues[partition] for partition in rules.partitions(self._topology, name)]

    async def _states(self, queues: Sequence[Queue], stored: Sequence[int | None] = ()) -> list[PartitionStatus]:
        """Return the state of partitions. A stream that was deleted meanwhile is empty."""
        states = await self._owner.apart(self._shard.stream_states, [queue.id for queue in queues])
        found = _statuses(queues, states)
        return (
            [replace(status, stored=offset) for status, offset in zip(found, stored, strict=True)] if stored else found
        )

    def _stored(self, queues: Sequence[Queue], group: str | None) -> list[int | None]:
        """Return the offset that a group stored of each partition. It has none of one that was deleted meanwhile."""
        if group is None:
            return []
        there = [self._topology.queues.get(queue.name) == queue for queue in queues]
        return [
            next((one.offset for one in self._shard.stream_groups(queue.id) if one.name == group), None)
            if is_there
            else None
            for queue, is_there in zip(queues, there, strict=True)
        ]

    async def _with_offsets_at(
        self, statuses: list[PartitionStatus], timestamp_ms: int | None
    ) -> list[PartitionStatus]:
        if timestamp_ms is None or not statuses:
            return statuses
        ids = [status.queue_id for status in statuses]
        offsets = await self._owner.apart(self._offsets_at, ids, timestamp_ms)
        return [replace(status, at_timestamp=offset) for status, offset in zip(statuses, offsets, strict=True)]

    def _offsets_at(self, ids: Sequence[QueueId], timestamp_ms: int) -> list[int]:
        return [self._shard.offset_at(queue_id, timestamp_ms) for queue_id in ids]

    def _groups(self, partitions: Sequence[PartitionStatus], queues: Sequence[Queue]) -> list[GroupStatus]:
        found: list[GroupStatus] = []
        for partition, queue in zip(partitions, queues, strict=True):
            found += (_group_status(partition, group) for group in self._shard.stream_groups(queue.id))
        return sorted(found, key=lambda group: (group.name, group.partition))

    def _require_group(self, rights: Rights, partition: Thing, group: str) -> None:
        """Require the permission to change a group; a reserved one says what all readers may expect."""
        rights.require(Access.READ, partition)
        if is_reserved(group):
            rights.require(Access.CONFIGURE, partition)

    def _check_group(self, group: str) -> None:
        thing = Thing("group", group[:64], self._topology.vhost)
        if not group:
            raise InvalidArgumentError(thing, "has no name", "name the group", field="group")
        check_name("group", group)

    def _whole(self, name: str, *, is_partitioned: bool) -> Thing:
        """Return the part that has the stream's name, for permissions: they know exchanges and queues alone."""
        return Thing("exchange", name, self._topology.vhost) if is_partitioned else self._queue(name)

    def _thing(self, name: str) -> Thing:
        return Thing("stream", name, self._topology.vhost)

    def _queue(self, name: str) -> Thing:
        return Thing("queue", name, self._topology.vhost)


def is_full_page(page: Sequence[StreamStatus], limit: int) -> bool:
    """Return whether there may be another page behind this one."""
    return _is_full(len(page), sum(len(stream.partitions) for stream in page), limit)


def _is_full(stream_count: int, partition_count: int, limit: int) -> bool:
    return stream_count >= limit or partition_count >= PAGE_SIZE_MAX


def _arguments(queues: Sequence[Queue]) -> Arguments:
    """Return what a declaration of the stream has besides its partitions, the same for each of them.

    The queue type is left out: it is that of every stream.
    """
    return {key: value for key, value in queues[0].arguments.items() if key != X_QUEUE_TYPE} if queues else {}


def _statuses(queues: Sequence[Queue], states: Sequence[StreamState]) -> list[PartitionStatus]:
    return [PartitionStatus(queue.name, state, None, queue.id) for queue, state in zip(queues, states, strict=True)]


def _partition_names(command: DeclareStream) -> list[str]:
    """Bounded, because the count is the client's and is judged only later."""
    if command.partition_count <= 1:
        return [command.name]
    return [f"{command.name}-{number}" for number in range(min(command.partition_count, PARTITIONS_MAX))]


def _group_status(partition: PartitionStatus, group: GroupState) -> GroupStatus:
    """Offsets may skip numbers, so that the lag is never more than there are messages."""
    state, offset = partition.state, group.offset
    behind = state.next - (state.first if offset is None else max(state.first, offset + 1))
    return GroupStatus(group.name, partition.name, offset, max(0, min(behind, state.count)), group.reader_count)
