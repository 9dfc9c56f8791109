"""One watch of the records of all shards in each process, however many of them are watched.

It lists all records, then follows the changes after that list until a pause is over, and begins again. A list is read
past all caches and never overlaps with following, so it has at least what was reported before it, and the next changes
begin at its revision. Therefore no record goes back for longer than the coordinator itself did, and no revisions are
compared: they come back when a coordinator is restored from a copy. A watch that a cut network has made silent hides
changes for one pause.

Limits: a process that watches any shard keeps the records of all shards of the cluster as they are stored.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from penstock.cluster.coordinator import Version, Versioned
from penstock.kit.logging import logger
from penstock.kit.tasks import spawn
from penstock.model.errors import StorageError, Thing

RETRY_S: Final = 0.1
"""The first wait after a list failed, or the changes ended early; each further one is twice as long."""
SOUND_S: Final = 1.0
"""Changes that were followed for so long count as no failure when they end."""
_log = logger("cluster")
Stored = TypeVar("Stored")


@dataclass(frozen=True, slots=True)
class Listing(Generic[Stored]):
    """All records at one moment, as they are stored, by their shards."""

    records: Mapping[str, Stored]
    revision: str = ""
    """Where the changes after it begin."""


class Source(Protocol[Stored]):
    """The records of a coordinator. Equal stored records are the same version."""

    async def listed(self) -> Listing[Stored]:
        """Return all records past all caches. Raises StorageError."""

    def changes(self, revision: str, seconds: float, /) -> AsyncGenerator[Mapping[str, Stored | None], None]:
        """Yield the records that changed after a revision, in their order; None for one that was deleted.

        It is left alone after so many seconds. It may end, be silent, or raise StorageError at any time.
        """

    def parse(self, shard: str, stored: Stored, /) -> Versioned:
        """Return a record. Raises StorageError if it is corrupt."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long the watch waits, so that lists keep the coordinator busy for a small share of the time."""

    poll_s: float
    """The pause between two lists at least."""
    lists: float = 20.0
    """The pause is at least as many times as long as the last list took."""

    def pause_s(self, list_s: float) -> float:
        return max(self.poll_s, self.lists * list_s)

    def retry_s(self, failures: int, list_s: float) -> float:
        """Return the wait after so many failures in a row. Without a list so far, `list_s` is zero."""
        return min(max(RETRY_S, list_s) * 2.0 ** (min(failures, 30) - 1), self.pause_s(list_s))


@dataclass(eq=False, slots=True)
class _Watcher:
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    failure: StorageError | None = None


class SharedWatch(Generic[Stored]):
    """It runs from the first watcher until the last one leaves, or until `close`.

    Invariant: while there are watchers, there is one task, and `_found` has what that task learned last.
    """

    def __init__(self, source: Source[Stored], pace: Pace) -> None:
        self._source = source
        self._pace = pace
        self._found: dict[str, Stored] = {}
        self._watchers: dict[str, set[_Watcher]] = {}
        self._task: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def watch(self, shard: str) -> AsyncGenerator[Versioned, None]:
        """Yield a shard's record, and again whenever it changed, until the watch is closed.

        Raises StorageError for a corrupt record of this shard.
        """
        watcher = _Watcher()
        self._join(shard, watcher)
        seen: Version | None = None
        try:
            while not self._is_closed:
                watcher.changed.clear()
                if watcher.failure is not None:
                    raise watcher.failure
                stored = self._found.get(shard)
                found = None if stored is None else self._source.parse(shard, stored)
                if found is not None and found.version != seen:
                    seen = found.version
                    yield found
                await watcher.changed.wait()
        finally:
            self._leave(shard, watcher)

    async def close(self) -> None:
        """End the task and all watches. Later ones end at once."""
        self._is_closed = True
        self._end()
        self._wake_all()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _join(self, shard: str, watcher: _Watcher) -> None:
        self._watchers.setdefault(shard, set()).add(watcher)
        if self._task is None and not self._is_closed:
            self._task = spawn(self._run(), name="watch of the coordinator", on_bug=self._fail)

    def _leave(self, shard: str, watcher: _Watcher) -> None:
        left = self._watchers.get(shard, set())
        left.discard(watcher)
        if not left:
            self._watchers.pop(shard, None)
        if not self._watchers:
            self._end()

    def _end(self) -> None:
        if self._task is not None:
            self._ending.add(self._task)
            self._task.add_done_callback(self._ending.discard)
            self._task.cancel()
            self._task = None
        self._found = {}  # the next watcher waits for a list, because these grow old

    def _fail(self, bug: Exception) -> None:
        """Let each watcher know of a bug that ended the task: the next one starts another."""
        for watcher in (each for watchers in self._watchers.values() for each in watchers):
            watcher.failure = StorageError(Thing("watch", "coordinator"), f"failed: {bug}", "see the log")
        self._wake_all()
        self._task, self._watchers, self._found = None, {}, {}

    async def _run(self) -> None:
        failures, list_s, is_away = 0, 0.0, False
        now = asyncio.get_running_loop().time
        while True:
            begun = now()
            try:
                listing = await self._source.listed()
            except StorageError as error:
                if not is_away:
                    _log.warning("coordinator does not list the shards", reason=str(error))
                failures, is_away = failures + 1, True
                await asyncio.sleep(self._pace.retry_s(failures, list_s))
                continue
            list_s, begun, is_away = now() - begun, now(), False
            self._replace(listing.records)
            if await self._follow(listing.revision, self._pace.pause_s(list_s)):
                failures = 0
            else:
                failures = 1 if now() - begun >= SOUND_S else failures + 1
                await asyncio.sleep(self._pace.retry_s(failures, list_s))

    async def _follow(self, revision: str, seconds: float) -> bool:
        """Take changes for so many seconds. Return False if they end before."""
        try:
            async with asyncio.timeout(seconds), aclosing(self._source.changes(revision, seconds)) as changes:
                async for changed in changes:
                    for shard, stored in changed.items():
                        self._set(shard, stored)
        except TimeoutError:
            return True
        except StorageError as error:
            _log.debug("watch of the coordinator ended", reason=str(error))
        return False

    def _replace(self, records: Mapping[str, Stored]) -> None:
        before, self._found = self._found, dict(records)
        for shard in self._watchers:
            if before.get(shard) != self._found.get(shard):
                self._wake(shard)

    def _set(self, shard: str, stored: Stored | None) -> None:
        if stored is None:
            self._found.pop(shard, None)
        else:
            self._found[shard] = stored
        self._wake(shard)

    def _wake_all(self) -> None:
        for shard in self._watchers:
            self._wake(shard)

    def _wake(self, shard: str) -> None:
        for watcher in self._watchers.get(shard, ()):
            watcher.changed.set()
