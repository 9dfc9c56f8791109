"""Streams: declaring and deleting them, their offsets, consumer groups and named producers."""

from collections.abc import Sequence

from penstock.archive.manifest import ARCHIVE_GROUP
from penstock.kit.settings import PAGE_SIZE_MAX
from penstock.metadata.commands import DeclareStream
from penstock.model.arguments import Arguments
from penstock.model.names import VhostName, check_name, existing_queue_name, vhost_name
from penstock.native import ProducerSequences, ProducerState, StreamPartition
from penstock.services.events import Events, TopologyChanged
from penstock.services.ports import ArchivedPart, ArchivedRows, Archives, ArchiveStanding
from penstock.services.principal import Principal
from penstock.services.verbs import changing, reading, repeated
from penstock.vhost.all_vhosts import AllVhosts
from penstock.vhost.rights import Rights
from penstock.vhost.streams import PRODUCERS_PAGE_MAX, GroupStatus, PartitionStatus, Streams, StreamStatus


class StreamVerbs:
    def __init__(self, vhosts: AllVhosts, archives: Archives, events: Events) -> None:
        self._vhosts = vhosts
        self._archives = archives
        self._events = events

    # ------------------------------------------------------------ as wholes

    @reading
    async def list_streams(
        self,
        principal: Principal,
        vhost: str,
        *,
        name: str | None = None,
        after: str | None = None,
        limit: int = PAGE_SIZE_MAX,
    ) -> list[StreamStatus]:
        """Return a page in the order of names, beginning after the name `after`.

        With a name, return only that one, which must be there.
        """
        _, rights, streams = self._in(principal, vhost)
        return await streams.statuses(rights, name, after=after, limit=limit)

    @repeated
    async def declare_stream(
        self, principal: Principal, vhost: str, name: str, partitions: int, arguments: Arguments
    ) -> Sequence[str]:
        """Return the names of its partitions."""
        place, rights, streams = self._in(principal, vhost)
        declared = await streams.declare(rights, DeclareStream(check_name("stream", name), partitions, arguments))
        if declared.is_new:
            self._events.emit(TopologyChanged(place))  # a publisher may have learned that there is none
        return declared.partitions

    @changing("DeleteStream", "vhost", "name")
    async def delete_stream(self, principal: Principal, vhost: str, name: str) -> int:
        """Return the number of messages that were deleted with it."""
        place, rights, streams = self._in(principal, vhost)
        dropped_count = await streams.delete(rights, check_name("stream", name))
        self._events.emit(TopologyChanged(place))
        return dropped_count

    # ------------------------------------------------------------ offsets

    @reading
    async def get_offsets(
        self, principal: Principal, vhost: str, stream: str, *, timestamp_ms: int | None = None, archive: bool = False
    ) -> list[tuple[PartitionStatus, ArchiveStanding | None]]:
        """Return where each partition begins and ends, and with `archive` what is archived below."""
        place, rights, streams = self._in(principal, vhost)
        found: list[tuple[PartitionStatus, ArchiveStanding | None]] = []
        for status in await streams.offsets(rights, stream, timestamp_ms, ARCHIVE_GROUP if archive else None):
            part = _part(place, streams, status)
            found.append((status, await self._archives.standing(part, timestamp_ms) if archive else None))
        return found

    @reading
    async def describe_streams(
        self, principal: Principal, vhost: str, names: Sequence[str], *, timestamp_ms: int | None = None
    ) -> tuple[VhostName, list[StreamPartition]]:
        """Return the virtual host's name and the partitions of streams, with what is archived of each."""
        place, rights, streams = self._in(principal, vhost)
        parts = await streams.parts(rights, names, timestamp_ms, ARCHIVE_GROUP, with_states=self._archives.is_open)
        found: list[StreamPartition] = []
        for partition in parts:
            archived = await self._archives.offsets(_part(place, streams, partition.status), timestamp_ms)
            at, since = partition.status.at_timestamp, archived.at_timestamp
            found.append(
                StreamPartition(
                    stream=partition.stream,
                    name=partition.status.name,
                    queue_id=partition.status.queue_id,
                    at_timestamp=at if since is None else since,
                    archived=archived.runs,
                    archive_error=archived.error,
                    partition_count=partition.partition_count,
                )
            )
        return place, found

    @reading
    async def read_archive(self, principal: Principal, vhost: str, partition: str, wanted: ArchivedRows) -> bytes:
        """Return the next wanted messages of the archive, as the listener takes them."""
        place, rights, streams = self._in(principal, vhost)
        status = await streams.admit_archive(rights, existing_queue_name(partition), ARCHIVE_GROUP)
        return await self._archives.piece(_part(place, streams, status), wanted)

    @changing("TrimStream", "vhost", "partition", "before")
    async def trim_stream(self, principal: Principal, vhost: str, partition: str, before: int) -> tuple[int, int]:
        """Return the number of messages that were dropped, and the first offset that is left."""
        _, rights, streams = self._in(principal, vhost)
        return await streams.trim(rights, existing_queue_name(partition), before)

    @repeated
    async def store_offset(self, principal: Principal, vhost: str, partition: str, group: str, offset: int) -> None:
        """Store a group's offset; it is on the disk when this returns."""
        _, rights, streams = self._in(principal, vhost)
        await streams.store_offset(rights, existing_queue_name(partition), group, offset)

    # ------------------------------------------------------------ groups and producers

    @reading
    async def list_groups(
        self,
        principal: Principal,
        vhost: str,
        stream: str,
        *,
        after: tuple[str, str] | None = None,
        limit: int = PAGE_SIZE_MAX,
    ) -> list[GroupStatus]:
        """Return a page in the order of names and partitions, beginning after a name and partition."""
        _, rights, streams = self._in(principal, vhost)
        return await streams.groups(rights, stream, after=after, limit=limit)

    @changing("DeleteGroup", "vhost", "stream", "group")
    async def delete_group(self, principal: Principal, vhost: str, stream: str, group: str) -> bool:
        """Return whether an offset was stored."""
        _, rights, streams = self._in(principal, vhost)
        return await streams.delete_group(rights, stream, group)

    @reading
    async def get_producer(self, principal: Principal, vhost: str, producer: str) -> ProducerSequences | None:
        """Return the sequence up to which all is stored, and the highest that any log has."""
        _, rights, streams = self._in(principal, vhost)
        return await streams.producer_sequences(rights, producer)

    @reading
    async def list_producers(
        self, principal: Principal, vhost: str, *, after: str = "", limit: int = 0
    ) -> list[ProducerState]:
        """Return a page in the order of names, beginning after the name `after`."""
        _, rights, streams = self._in(principal, vhost)
        return await streams.producers(rights, after, limit or PRODUCERS_PAGE_MAX)

    @changing("DeleteProducer", "vhost", "producer")
    async def delete_producer(self, principal: Principal, vhost: str, producer: str) -> bool:
        """Return whether it was there."""
        _, rights, streams = self._in(principal, vhost)
        return await streams.delete_producer(rights, producer)

    def _in(self, principal: Principal, vhost: str) -> tuple[VhostName, Rights, Streams]:
        found = self._vhosts.get(vhost_name(vhost))
        return found.name, principal.in_vhost(found.name), found.streams


def _part(vhost: str, streams: Streams, status: PartitionStatus) -> ArchivedPart:
    archived_next = 1 if status.stored is None else status.stored + 1
    stream = streams.stream_of(status.name)
    return ArchivedPart(vhost, stream, status.name, status.queue_id, status.state, archived_next)
