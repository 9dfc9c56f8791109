"""Verbs of a stream besides reading and publishing. The form for threads is generated."""

import time
from datetime import datetime

from penstock.client import stream_calls
from penstock.client.records import Group, PartitionOffsets, StreamInfo
from penstock.client.steps import AsyncRun

__all__ = ["AsyncStreamVerbs"]


class AsyncStreamVerbs:
    """Verbs about the contents of a stream, or of one partition of it, and about its groups."""

    def __init__(self, run: AsyncRun, vhost: str, name: str) -> None:
        self.name = name
        self._run = run
        self._vhost = vhost

    async def info(self) -> StreamInfo:
        """Return the stream's partitions, arguments and counts; raise NotFoundError if there is no such stream."""
        return await self._run(stream_calls.get_stream(self._vhost, self.name))

    async def offsets(self, at: "datetime | str | None" = None, *, archive: bool = True) -> list[PartitionOffsets]:
        """Return where each partition begins and ends; with `at`, also the first offset stored at or after it.

        It fails when the broker cannot read the stream's archive, unless `archive` is False.
        """
        now_ms = int(time.time() * 1_000)
        return await self._run(stream_calls.get_offsets(self._vhost, self.name, at, now_ms, archive=archive))

    async def trim(self, before: int, partition: str | None = None) -> int:
        """Delete the oldest messages below offset `before`, in whole segments; return the first offset that remains.

        That offset may be lower than `before`.
        """
        return await self._run(stream_calls.trim_stream(self._vhost, partition or self.name, before))

    async def store(self, group: str, offset: int, partition: str | None = None) -> None:
        """Store that a group has processed everything up to this offset; return when that is on the disk."""
        await self._run(stream_calls.store_offset(self._vhost, partition or self.name, group, offset))

    async def groups(self) -> list[Group]:
        """Return the groups with the offset that each has stored."""
        return await self._run(stream_calls.list_groups(self._vhost, self.name))

    async def delete_group(self, group: str) -> bool:
        """Delete the offsets of a group; return whether there were any."""
        return await self._run(stream_calls.delete_group(self._vhost, self.name, group))
