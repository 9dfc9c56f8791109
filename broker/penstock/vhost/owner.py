"""The one task that changes a vhost's topology: it decides, appends, commits and applies.

Commands wait in a bounded inbox. A round takes all of them, decides them in order on a pending copy of the topology,
appends the decided changes with one write and one sync, changes the engine and the topology, then answers. Readers see
the committed topology and wait for no append. A command that finds the disk full waits until there is space, and delays
no other. After a fault that leaves the definitions file in doubt no command is decided any more, and a queue whose
deletion may be in the file takes no more messages, which a start would delete.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, ParamSpec, TypeVar

from penstock.metadata import VhostTopology
from penstock.metadata.commands import Command, ConnectionClosed, QueueUnused
from penstock.metadata.effects import Done
from penstock.model.errors import (
    DiskFullError,
    FaultError,
    FileClosedError,
    NotWrittenError,
    RefusedError,
    StoppedError,
    StorageError,
    Thing,
)
from penstock.model.names import ConnectionId, QueueName
from penstock.native import Backup, QueueCounts, Shard
from penstock.vhost.batches import Batch, Batches, Outcome, Request, Work
from penstock.vhost.ports import DefinitionsBackup, DefinitionsFile
from penstock.vhost.threads import VhostThreads

COMMANDS_WAITING_MAX: Final = 1_024
"""More callers than this wait outside. It is also the most that one round can take, and so bounds a round's time."""
DELAYED_MAX: Final = 1_024
"""The most commands that wait for space on a full disk. More are refused."""
RETRY_SECONDS: Final = 0.25
"""The time until a disk that was full or refused a write is tried again."""
STALL_SECONDS: Final = 0.05
"""The time until a shard that stalls is looked at again."""

_CLEANING: Final = (ConnectionClosed, QueueUnused)
"""Commands of the broker itself. No client repeats them, so they wait until the disk takes them, however many wait and
whatever the disk refused."""

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class _OnThread:
    """A look that may wait for the disk: it is taken on a thread, and no round begins meanwhile."""

    look: Callable[[], object]

    def __call__(self) -> object:
        return self.look()


class Owner:
    """Runs from `run` to `close` or to the first fault that leaves the file in doubt.

    Invariants: only `run` changes the topology, and only to what is on the disk; while `is_applying` the engine may be
    ahead of the topology, and at no other time; every caller gets exactly one answer.
    """

    def __init__(
        self,
        topology: VhostTopology,
        shard: Shard,
        definitions: DefinitionsFile,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self.topology = topology
        self.shard = shard
        self.is_applying = False
        self.stopped: StoppedError | None = None
        self._definitions = definitions
        self._batches = Batches(topology, shard, self.apart)
        self._retry_seconds = retry_seconds
        self._inbox: list[Request] = []
        self._inbox_slots = asyncio.Semaphore(COMMANDS_WAITING_MAX)
        self._threads = VhostThreads()
        self._has_work = asyncio.Event()
        self._round: list[Request] = []
        self._is_full = False
        self._delayed: list[Request] = []
        self._retry_at = 0.0
        self._ended = asyncio.Event()

    @property
    def is_busy(self) -> bool:
        """Whether a command is being decided or committed. One that waits for space on the disk does not count."""
        return bool(self._round or self._inbox)

    @property
    def fault(self) -> str | None:
        """Why it takes no more commands or messages, or None."""
        return self.shard.fault if self.stopped is None else self.stopped.cause

    def number_of(self, connection: ConnectionId) -> ConnectionId:
        """Return the number that a connection has in the topology."""
        return connection

    async def submit(self, command: Command) -> Outcome:
        """Return when the command is committed.

        A caller that leaves does not revoke it, unless it waits for space on the disk. Raises the command's
        RefusedError; NotWrittenError or DiskFullError when the disk refused only this command; or StoppedError.
        """
        outcome: Outcome = await self._wait(command)
        return outcome

    async def read(self, look: Callable[[], T]) -> T:
        """Return what `look` returns, which reads the committed topology alone. It waits for nothing."""
        if self.stopped is not None:
            raise self._refusal()
        return look()

    async def read_serving(self, look: Callable[[], T]) -> T:
        """Return what `look` returns, for a client that wants to move messages."""
        return await self.read(look)

    async def find_replica(self, shard: int) -> None:
        """There is no other broker."""
        del shard

    async def other_leader(self, unreachable: str) -> None:
        """There is no other broker."""
        del unreachable

    async def check_leader(self, broker: str) -> None:
        """There is no other broker."""
        del broker

    async def read_delivering(self, look: Callable[[], T]) -> T:
        """Return what `look` returns, for a client that is answered with the messages that there are."""
        return await self.read(look)

    async def read_engine(self, look: Callable[[], T]) -> T:
        """Return what `look` returns, which asks the shard, too: it waits while the shard stalls or is changed."""
        if self.stopped is not None:
            raise self._refusal()
        if not self.is_applying and not self.shard.is_stalled:
            return look()
        seen: T = await self._wait(look)
        return seen

    async def apart(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call work that may wait for the disk on a thread."""
        return await self._threads.run(work, *args, **kwargs)

    async def grow(self, shard_count: int) -> None:
        """Return when the shard has so many shards, and new queues are placed in them."""
        await self.apart(self.shard.grow, shard_count)
        # A batch that is decided now has its own copy of the former number.
        self.topology.shard_count = shard_count

    async def begin_backup(self) -> tuple[DefinitionsBackup, Backup]:
        """Fix file and log between two rounds, when they agree; declares wait for no more than that."""
        begun: tuple[DefinitionsBackup, Backup] = await self._wait(_OnThread(self._begin_backup))
        return begun

    def _begin_backup(self) -> tuple[DefinitionsBackup, Backup]:
        definitions = self._definitions.begin_backup()
        try:
            return definitions, self.shard.begin_backup()
        except FaultError:
            definitions.close()
            raise

    def counts(self, names: list[QueueName]) -> list[QueueCounts]:
        """Return the counts of queues, for a `look` of `read_engine`."""
        return self.shard.queue_counts([self.topology.queues[name].id for name in names])

    async def run(self) -> None:
        cause = "its worker failed"
        try:
            cause = await self._run_rounds()
        except asyncio.CancelledError:
            cause = "the broker stops"
            raise
        finally:
            self._stop(cause)

    async def close(self, cause: str) -> None:
        """Decide what waits already, take nothing more, and return when `run` has ended."""
        if self.stopped is None:
            self.stopped = StoppedError(self._thing(), cause)
            self._has_work.set()
        await self._ended.wait()

    async def _run_rounds(self) -> str:
        """Return the cause of its end."""
        while self._round or self._inbox or self.stopped is None:
            if not self._round:
                await self._wait_for_work()
                self._round = self._take_all()
            try:
                await self._until_calm()
                if (self._is_full or self._delayed) and asyncio.get_running_loop().time() >= self._retry_at:
                    await self._try_again()
                await self._run_round()
            except FaultError as fault:
                return str(fault)
        return self.stopped.cause

    async def _wait_for_work(self) -> None:
        """Wait for requests, or until a full disk is tried again."""
        seconds = self._retry_at - asyncio.get_running_loop().time() if self._delayed else None
        with suppress(TimeoutError):
            await asyncio.wait_for(self._has_work.wait(), seconds)
        self._has_work.clear()

    def _take_all(self) -> list[Request]:
        taken, self._inbox = self._inbox, []
        for _ in taken:
            self._inbox_slots.release()
        return taken

    async def _try_again(self) -> None:
        """Try the first command that waits for space. When there is space, the others are the first of the round."""
        self._delayed = [request for request in self._delayed if not request.answer.done()]
        if self._delayed:
            batch = await self._batches.decide(self._delayed[:1])
            try:
                await self._append(batch)
            except DiskFullError:
                self._retry_soon()
                return
            except NotWrittenError as error:
                self._refuse_unwritten(self._delayed.pop(0), error)
                return
            await self._apply(batch)
            del self._delayed[0]
        self._round = self._delayed + self._round
        self._delayed, self._is_full = [], False

    async def _run_round(self) -> None:
        while self._round:
            done_count = await (self._run_one() if self._is_full else self._run_batch())
            del self._round[:done_count]

    async def _run_batch(self) -> int:
        """Commit as many requests as go together. Return how many were answered."""
        batch = await self._batches.decide(self._round)
        try:
            await self._append(batch)
        except DiskFullError:
            self._is_full = True
            self._retry_soon()
            return 0
        except NotWrittenError as error:
            unwritten = batch.unwritten()
            for request in unwritten:
                self._refuse_unwritten(request, type(error)(error.thing, error.rule, error.way_out))
            # The others may have been decided by what was dropped, so they are decided again.
            refused = {id(request) for request in unwritten}
            self._round = [request for request in self._round if id(request) not in refused]
            return 0
        await self._apply(batch)
        return len(batch.requests)

    async def _run_one(self) -> int:
        """Run the next request alone, on a full disk, and return how many requests were taken.

        It is committed when it needs no space, or little as a deletion does, and delayed otherwise.
        """
        batch = await self._batches.decide(self._round[:1], makes_logs=False)
        (request,) = batch.requests
        if not batch.needs_little_space:
            await self._drop(batch)
            self._delay(request)
            return 1
        try:
            await self._append(batch)
        except DiskFullError:
            self._delay(request)
        except NotWrittenError as error:
            self._refuse_unwritten(request, error)
        else:
            await self._apply(batch)
        return 1

    def _refuse_unwritten(self, request: Request, error: NotWrittenError) -> None:
        if isinstance(request.work, _CLEANING):
            self._delay(request)
            self._retry_soon()
        else:
            request.refuse(error)

    def _retry_soon(self) -> None:
        self._retry_at = asyncio.get_running_loop().time() + self._retry_seconds

    def _delay(self, request: Request) -> None:
        is_cleaning = isinstance(request.work, _CLEANING)
        if is_cleaning and any(other.work == request.work for other in self._delayed):
            request.resolve(Outcome(Done(0)))  # the one that waits already does it
        elif is_cleaning or len(self._delayed) < DELAYED_MAX:
            self._delayed.append(request)
        else:
            request.refuse(DiskFullError(self._thing(), "finds the disk full", "consume messages or free space"))

    async def _append(self, batch: Batch) -> None:
        """Append the batch.

        Raises DiskFullError or NotWrittenError when nothing of the batch is written; it is dropped then. After another
        fault it may be written.
        """
        entries = batch.entries
        if not entries:
            return
        try:
            await self._definitions.append(entries)
        except FileClosedError as error:
            await self._drop(batch)
            raise StorageError(error.thing, error.rule, error.way_out) from error
        except (NotWrittenError, DiskFullError):
            await self._drop(batch)
            raise
        except Exception:  # raised again: the vhost stops, and its deletions may be on the disk
            await self._shut_deleted(batch)
            raise

    async def _apply(self, batch: Batch) -> None:
        """Apply a batch that is on the disk, and answer it."""
        try:
            await self._until_calm()
            self.is_applying = True
            results = await self._batches.apply(batch)
        except Exception:  # raised again: the vhost stops, and its deletions are on the disk
            await self._shut_deleted(batch)
            raise
        self.is_applying = False
        for request, result in results:
            if isinstance(result, RefusedError | StorageError):
                request.refuse(result)
            else:
                request.resolve(result if result is not None else await self._look(request))

    async def _drop(self, batch: Batch) -> None:
        await self._until_calm()
        await self._batches.drop(batch)

    async def _shut_deleted(self, batch: Batch) -> None:
        await self._until_calm()
        self._batches.shut_deleted(batch)

    async def _until_calm(self) -> None:
        """Wait while the shard waits for its disk. The event loop goes on."""
        while self.shard.is_stalled:  # noqa: ASYNC110 (a lock in the native module wakes no task)
            await asyncio.sleep(STALL_SECONDS)

    async def _look(self, request: Request) -> object:
        assert callable(request.work)
        try:
            return await asyncio.to_thread(request.work) if isinstance(request.work, _OnThread) else request.work()
        except (RefusedError, FaultError) as error:
            # A look changed nothing, so its fault is the caller's alone.
            request.refuse(error)
            return None

    async def _wait(self, work: Work) -> Any:
        if self.stopped is not None:
            raise self._refusal()
        await self._inbox_slots.acquire()
        if self.stopped is not None:
            # It stopped while this caller waited outside; the next one outside must hear of it too.
            self._inbox_slots.release()
            raise self._refusal()
        request = Request(work, asyncio.get_running_loop().create_future())
        self._inbox.append(request)
        self._has_work.set()
        return await request.answer

    def _stop(self, cause: str) -> None:
        if self.stopped is None:
            self.stopped = StoppedError(self._thing(), cause)
        self._ended.set()
        for request in (*self._round, *self._delayed, *self._take_all()):
            request.refuse(self._refusal())

    def _refusal(self) -> StoppedError:
        """Return an error for one caller: an exception carries the traceback of one raise."""
        assert self.stopped is not None
        return StoppedError(self.stopped.thing, self.stopped.cause)

    def _thing(self) -> Thing:
        return Thing("vhost", self.topology.vhost)
