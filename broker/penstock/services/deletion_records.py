"""Records the beginnings and ends of users' deletions in `deletions.json`: all that wait are written at once.

A thousand deletions at once then take a few writings, and hold no thread that changes of virtual hosts wait for.
"""

import asyncio

from penstock.kit.tasks import spawn
from penstock.model.errors import FaultError, StorageError, Thing
from penstock.storage.deletions_json import DELETIONS, Deletion, Deletions, Kind

_THING = Thing("file", DELETIONS)
_Waiting = tuple[Deletion, bool, "asyncio.Future[None]"]


class DeletionRecords:
    """One task writes them, in the order asked for."""

    def __init__(self, deletions: Deletions) -> None:
        self._deletions = deletions
        self._waiting: list[_Waiting] = []
        self._writer: asyncio.Task[None] | None = None

    def begun(self) -> list[Deletion]:
        """Return the deletions of users that have begun and not ended."""
        return [deletion for deletion in self._deletions.begun if deletion.kind is Kind.USER]

    async def begin(self, deletion: Deletion) -> None:
        """Return when the beginning is on the disk. Raises StorageError."""
        await self._record(deletion, is_begin=True)

    async def end(self, deletion: Deletion) -> None:
        """Return when the end is on the disk. Raises StorageError."""
        await self._record(deletion, is_begin=False)

    async def settled(self) -> None:
        """Wait until nothing is being written."""
        if self._writer is not None:
            await asyncio.wait([self._writer])

    async def _record(self, deletion: Deletion, *, is_begin: bool) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((deletion, is_begin, done))
        if self._writer is None:
            self._writer = spawn(self._write_waiting(), name="deletions of users")
        await done

    async def _write_waiting(self) -> None:
        round_: list[_Waiting] = []
        try:
            while self._waiting:
                round_, self._waiting = self._waiting, []
                await self._write(round_)
        finally:
            self._writer = None
            for _, _, done in [*round_, *self._waiting]:  # none is left unless a bug ended this task
                if not done.done():
                    done.set_exception(StorageError(_THING, "could not be changed", "see the broker's log"))
            self._waiting = []

    async def _write(self, round_: list[_Waiting]) -> None:
        begins = [deletion for deletion, is_begin, _ in round_ if is_begin]
        ends = [deletion for deletion, is_begin, _ in round_ if not is_begin]
        fault: FaultError | None = None
        try:
            await asyncio.to_thread(self._deletions.change, begins, ends)
        except FaultError as raised:
            fault = raised
        for _, _, done in round_:
            if done.done():
                continue
            if fault is None:
                done.set_result(None)
            else:
                done.set_exception(fault)
