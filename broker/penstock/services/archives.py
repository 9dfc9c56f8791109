"""Reads archived parts of streams from the folder of the setting `archive_dir`.

A pipeline writes manifests and files there, one folder a stream. They are read on threads of their own, so that
archives delay only their readers.
"""

import asyncio
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from cachetools import LRUCache

from penstock.archive.errors import ArchiveError
from penstock.archive.folder import MANIFEST, folder_of, read_manifest
from penstock.archive.manifest import (
    ARCHIVE_GROUP,
    ArchivedFile,
    ArchivedPartition,
    Live,
    Manifest,
    belongs,
    file_since,
    files_from,
    rows_of,
    runs_within,
)
from penstock.kit.logging import logger
from penstock.kit.settings import ARCHIVE_MANIFESTS_MAX, ARCHIVE_THREADS_MAX
from penstock.model.errors import CorruptError, Thing
from penstock.native import ArchivedRuns, OffsetRun
from penstock.services.ports import ArchivedOffsets, ArchivedPart, ArchivedRows, ArchiveStanding

T = TypeVar("T")
Signature = tuple[int, int, int]
_log = logger("archives")


class NoArchives:
    """Implements the front ends' port for a broker without `archive_dir`, which may have been set before."""

    is_open = False

    async def standing(self, part: ArchivedPart, _timestamp_ms: int | None) -> ArchiveStanding | None:
        if part.needed_next > 1:
            raise _unreadable(part, _not_set(part))
        return None

    async def offsets(self, part: ArchivedPart, _timestamp_ms: int | None) -> ArchivedOffsets:
        return ArchivedOffsets(error=str(_unreadable(part, _not_set(part))) if part.needed_next > 1 else None)

    async def piece(self, part: ArchivedPart, wanted: ArchivedRows) -> bytes:
        if part.needed_next > max(1, wanted.start) and not wanted.skip_unreadable:
            raise _unreadable(part, _not_set(part))
        return b""


class Archives:
    """Implements the front ends' port. Close it after its last user."""

    is_open = True

    def __init__(self, folder: Path) -> None:
        """Open the archives of a folder. Raises ArchiveError when the library that reads Parquet is missing."""
        # Only looked for: it is large, and imported when somebody reads.
        if find_spec("pyarrow") is None:
            raise ArchiveError(
                "archive_dir is set and pyarrow is missing; install 'penstock[archive]', or leave it out"
            )
        self._folder = folder
        self._threads = ThreadPoolExecutor(ARCHIVE_THREADS_MAX, thread_name_prefix="archive")
        # By folder; what a manifest was read from says whether it is still the one that is there.
        self._manifests: LRUCache[Path, tuple[Signature, Manifest]] = LRUCache(ARCHIVE_MANIFESTS_MAX)

    def close(self) -> None:
        self._threads.shutdown()

    async def standing(self, part: ArchivedPart, timestamp_ms: int | None) -> ArchiveStanding | None:
        return await self._run(part, lambda: self._standing_now(part, timestamp_ms))

    async def offsets(self, part: ArchivedPart, timestamp_ms: int | None) -> ArchivedOffsets:
        try:
            return await self._run(part, lambda: self._offsets_now(part, timestamp_ms))
        except CorruptError as error:
            # Readers that begin behind the archive need nothing of it.
            return ArchivedOffsets(error=str(error) if part.state.first > 1 else None)

    async def piece(self, part: ArchivedPart, wanted: ArchivedRows) -> bytes:
        return await self._run(part, lambda: self._piece_now(part, wanted))

    async def _run(self, part: ArchivedPart, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except (ArchiveError, OSError) as error:
            raise _unreadable(part, str(error)) from error

    def _standing_now(self, part: ArchivedPart, timestamp_ms: int | None) -> ArchiveStanding | None:
        folder, partition = self._partition(part)
        if missing := _missing(folder, partition, part):
            raise ArchiveError(missing)
        live_first = part.state.first
        below = [] if partition is None else files_from(partition.files, 0, live_first)
        if partition is None or not below:
            return None
        runs, total = runs_within(below, live_first)
        at = self._offset_since(folder, below, timestamp_ms, live_first)
        return ArchiveStanding(below[0].first, partition.next, rows_of(runs), total, at)

    def _offsets_now(self, part: ArchivedPart, timestamp_ms: int | None) -> ArchivedOffsets:
        folder, partition = self._partition(part)
        live_first, at, error = part.state.first, None, _missing(folder, partition, part)
        below = [] if partition is None else files_from(partition.files, 0, live_first)
        runs, total = runs_within(below, live_first)
        try:
            at = self._offset_since(folder, below, timestamp_ms, live_first)
        except ArchiveError as problem:
            error = str(problem)
        return ArchivedOffsets(
            ArchivedRuns(below=live_first, runs=[OffsetRun(first=first, end=end) for first, end in runs], bytes=total),
            at,
            error and str(_unreadable(part, error)),
        )

    def _offset_since(
        self, folder: Path, files: Sequence[ArchivedFile], timestamp_ms: int | None, end: int
    ) -> int | None:
        """Return the first offset before `end` that was stored at this time or later."""
        file = None if timestamp_ms is None else file_since(files, timestamp_ms)
        if file is None or timestamp_ms is None:
            return None
        from penstock.archive.reading import offset_since

        at = offset_since(folder, file, timestamp_ms)
        return at if at is not None and at < end else None

    def _piece_now(self, part: ArchivedPart, wanted: ArchivedRows) -> bytes:
        folder, partition = self._partition(part)
        files = [] if partition is None else files_from(partition.files, wanted.start, wanted.end)
        if not files:
            missing = _missing(folder, partition, part)
            if missing and part.needed_next > wanted.start and not wanted.skip_unreadable:
                raise ArchiveError(missing)
            return b""
        from penstock.archive.filtering import RowFilter
        from penstock.archive.reading import Wanted, passed_over, read_piece

        rows = RowFilter(wanted.key_is, wanted.routing_key_is, wanted.header_is)
        asked = Wanted(wanted.start, wanted.end, wanted.columns, rows)
        try:
            messages = read_piece(folder, files[0], asked)
        except ArchiveError as error:
            if not wanted.skip_unreadable:
                raise
            _log.warning("file of an archive passed over", partition=part.partition, reason=str(error))
            messages = [passed_over(files[0], asked)]
        parts: list[bytes] = []
        for message in messages:
            parts += (struct.pack("<QQI", message.next, message.seen, len(message.content)), message.content)
        return b"".join(parts)

    def _partition(self, part: ArchivedPart) -> tuple[Path, ArchivedPartition | None]:
        """None when nothing is archived of it, or only of another one that had its name."""
        folder = folder_of(self._folder, part.vhost, part.stream)
        partition = self._manifest(folder, part).partitions.get(part.partition)
        first, next_, first_timestamp_ms = part.state.first, part.state.next, part.state.first_timestamp_ms
        if partition is None or not belongs(partition, part.queue_id, Live(first, next_, first_timestamp_ms)):
            return folder, None
        return folder, partition

    def _manifest(self, folder: Path, part: ArchivedPart) -> Manifest:
        """Return the current manifest. Two threads may read it at the same time, and keep the same."""
        try:
            found = (folder / MANIFEST).stat()
        except FileNotFoundError:
            return Manifest(part.vhost, part.stream)
        signature = (found.st_ino, found.st_mtime_ns, found.st_size)
        kept = self._manifests.get(folder)
        if kept is not None and kept[0] == signature:
            return kept[1]
        manifest = read_manifest(folder, part.vhost, part.stream)
        self._manifests[folder] = (signature, manifest)
        return manifest


def _missing(folder: Path, partition: ArchivedPartition | None, part: ArchivedPart) -> str | None:
    """Return a sentence about archived messages that neither the folder nor the log has."""
    there = 1 if partition is None else partition.next
    if there >= part.needed_next:
        return None
    found = f"only those up to offset {there - 1}" if there > 1 else "none of them"
    return (
        f"messages of '{part.partition}' were archived up to offset {part.archived_next - 1}, and {folder} has {found};"
        f" mount the archive there, or delete the group '{ARCHIVE_GROUP}' of the stream if it is gone for good"
    )


def _not_set(part: ArchivedPart) -> str:
    return (
        f"messages of '{part.partition}' were archived up to offset {part.archived_next - 1}, and 'archive_dir' is not "
        f"set; set it, or delete the group '{ARCHIVE_GROUP}' of the stream if the archive is gone for good"
    )


def _unreadable(part: ArchivedPart, reason: str) -> CorruptError:
    return CorruptError(Thing("archive", part.stream, part.vhost), f"cannot be read: {reason}", "retry after that")
