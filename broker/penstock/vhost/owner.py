"""The one task that owns a vhost's topology. Commands wait in a bounded inbox; a round takes all of them, decides
them in order, writes their entries with one append, then changes the engine, then answers. What looks at topology and
engine together does so between rounds, when the two agree. After a fault nothing is decided any more: the state may
be ahead of the disk, and a queue whose deletion may be on it takes no more messages, which a start would delete.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, ParamSpec, TypeGuard, TypeVar

from penstock.kit.settings import VHOST_THREADS_MAX
from penstock.metadata import VhostTopology, decide, take_back
from penstock.metadata.commands import ClearPolicy, Command, DeleteQueue, QueueUnused, SetPolicy
from penstock.metadata.effects import Answer, Decision, DropQueue, Entry, PersistQueueDeleted, PutQueue
from penstock.model.errors import (
    DiskFullError,
    FaultError,
    NotWrittenError,
    RefusedError,
    StoppedError,
    StorageError,
    Thing,
)
from penstock.model.names import QueueId, QueueName
from penstock.native import Backup, QueueCounts, Shard
from penstock.vhost.apply import apply_changes
from penstock.vhost.ports import DefinitionsBackup, DefinitionsFile

COMMANDS_WAITING_MAX: Final = 1_024
"""More callers than this wait outside. It is also the most that one round can take, and so bounds a round's time."""
ROOM_SECONDS: Final = 0.25
"""How long until a full disk is tried again."""
STALL_SECONDS: Final = 0.05
"""How long until a shard that stalls is looked at again."""
NOT_WRITTEN: Final = (NotWrittenError, DiskFullError)
"""Raised by the definitions file alone, which then has nothing of a round."""
NO_COUNTS: Final = QueueCounts()

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Outcome:
    """`dropped_count` is the number of messages that went with what was deleted or purged."""

    answer: Answer
    dropped_count: int = 0


@dataclass(frozen=True, slots=True)
class _Apart:
    """A look that may wait for the disk: it is taken on a thread, and no round begins meanwhile."""

    look: Callable[[], object]

    def __call__(self) -> object:
        return self.look()


@dataclass(slots=True)
class _Waiting:
    """A command to decide, or a look to take when the round is done."""

    work: Command | Callable[[], object]
    answer: asyncio.Future[Any]

    def give(self, answer: object) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)

    def refuse(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


_Decided = tuple[_Waiting, Decision | RefusedError | StorageError | None]
"""None for a look."""
_Result = Outcome | RefusedError | StorageError | None


class Owner:
    """Runs from `run` to `close` or to the first fault.

    Invariants: only `run` changes the topology; while `is_settling` the topology may be ahead of the engine, and at
    no other time; the engine has every queue whose id is below `_applied_below`; every caller gets exactly one answer.
    """

    def __init__(
        self,
        topology: VhostTopology,
        shard: Shard,
        definitions: DefinitionsFile,
        room_seconds: float = ROOM_SECONDS,
    ) -> None:
        self.topology = topology
        self.shard = shard
        self.is_settling = False
        self.stopped: StoppedError | None = None
        self._definitions = definitions
        self._room_seconds = room_seconds
        self._inbox: list[_Waiting] = []
        self._room = asyncio.Semaphore(COMMANDS_WAITING_MAX)
        self._threads = asyncio.Semaphore(VHOST_THREADS_MAX)
        self._has_work = asyncio.Event()
        self._round: list[_Waiting] = []
        self._ended = asyncio.Event()
        self._applied_below = topology.next_queue_id

    async def submit(self, command: Command) -> Outcome:
        """Raises the command's RefusedError, or StoppedError. A caller that goes away does not take it back."""
        outcome: Outcome = await self._wait(command)
        return outcome

    async def read(self, look: Callable[[], T]) -> T:
        """Calls `look`, which asks the topology alone, when topology and engine agree: at once, or after the round that
        is under way. The shard is not asked whether it stalls: finding that out takes the event loop a moment."""
        if self.stopped is not None:
            raise self._refusal()
        if not self.is_settling:
            return look()
        seen: T = await self._wait(look)
        return seen

    async def read_engine(self, look: Callable[[], T]) -> T:
        """The same for a `look` that asks the shard, too: it waits while the shard stalls."""
        if self.stopped is not None:
            raise self._refusal()
        if not self.is_settling and not self.shard.is_stalled:
            return look()
        seen: T = await self._wait(look)
        return seen

    async def apart(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls what may wait for the disk, on a thread. Of one virtual host only so many do at a time, so that one
        whose disk hangs leaves threads to the others."""
        await self._threads.acquire()
        # A caller that goes away does not end the thread, which keeps its place.
        thread = asyncio.get_running_loop().run_in_executor(None, partial(work, *args, **kwargs))
        thread.add_done_callback(lambda _: self._threads.release())
        return await asyncio.shield(thread)

    async def begin_backup(self) -> tuple[DefinitionsBackup, Backup]:
        """Fixes file and log between two rounds, when they agree; declares wait for no more than that."""
        begun: tuple[DefinitionsBackup, Backup] = await self._wait(_Apart(self._begin_backup))
        return begun

    def _begin_backup(self) -> tuple[DefinitionsBackup, Backup]:
        definitions = self._definitions.begin_backup()
        try:
            return definitions, self.shard.begin_backup()
        except FaultError:
            definitions.close()
            raise

    def counts(self, names: list[QueueName]) -> list[QueueCounts]:
        """For use in a `look` of `read_engine`."""
        return self.shard.queue_counts([self.topology.queues[name].id for name in names])

    def is_applied(self, queue_id: QueueId) -> bool:
        """Whether the engine has this queue of the topology, also while a round settles."""
        return queue_id < self._applied_below

    async def run(self) -> None:
        cause = "its owner ended by a bug"
        try:
            cause = await self._run_rounds()
        except asyncio.CancelledError:
            cause = "the broker stops"
            raise
        finally:
            self._stop(cause)

    async def close(self, cause: str) -> None:
        """Decides what waits already, takes nothing more, and returns when `run` has ended."""
        if self.stopped is None:
            self.stopped = StoppedError(self._thing(), cause)
            self._has_work.set()
        await self._ended.wait()

    async def _run_rounds(self) -> str:
        """Gives the cause of its end."""
        while self._round or self._inbox or self.stopped is None:
            if not self._round:
                await self._has_work.wait()
                self._has_work.clear()
                self._round = self._take_all()
            try:
                await self._run_round()
            except FaultError as fault:
                return str(fault)
        return self.stopped.cause

    async def _run_round(self) -> None:
        self.is_settling = True
        await self._until_calm()
        decided = await self._decide_round()
        try:
            await self._write_down(decided)
            await self._until_calm()
            results = await self._perform_all(decided)
        except NOT_WRITTEN:
            await self._reopen(decided)
            raise
        except Exception:  # whatever it was, the deletions may be on the disk; it goes on to stop the virtual host
            await self._shut_deleted(decided)
            raise
        self.is_settling = False
        self._applied_below = self.topology.next_queue_id
        for waiting, result in results:
            if isinstance(result, RefusedError | StorageError):
                waiting.refuse(result)
            else:
                waiting.give(result if result is not None else await self._look(waiting))
        self._round = self._round[len(decided) :]

    async def _decide_round(self) -> list[_Decided]:
        """Up to a deletion that depends on what a queue holds which the engine does not have yet: it waits for the next
        round, when the queue can be shut, with all that came behind it."""
        decided: list[_Decided] = []
        for waiting in self._round:
            work = waiting.work
            if _is_if_empty(work) and work.name in self.topology.queues and self._applied(work.name) is None:
                break
            decision = await self._decide_in_place(work)
            decided.append((waiting, await self._with_logs(decision) if isinstance(decision, Decision) else decision))
        return decided

    async def _decide_in_place(self, work: Command | Callable[[], object]) -> Decision | RefusedError | None:
        """Decide a change of policies on a thread, because all names are matched: it replaces one list of the topology,
        and nothing else changes the topology meanwhile. Everything else is decided at once."""
        if isinstance(work, SetPolicy | ClearPolicy):
            return await asyncio.to_thread(self._decide, work)
        return self._decide(work)

    async def _until_calm(self) -> None:
        """While the shard waits for its disk, whoever asks this virtual host waits, and the event loop goes on."""
        while self.shard.is_stalled:  # noqa: ASYNC110 (a lock in the native module rings no event)
            await asyncio.sleep(STALL_SECONDS)

    async def _write_down(self, decided: list[_Decided]) -> None:
        entries: list[Entry] = []
        for _, decision in decided:
            if isinstance(decision, Decision):
                entries += decision.entries
        if entries:
            await self._append(entries)

    async def _shut_deleted(self, decided: list[_Decided]) -> None:
        """Their deletions may be on the disk, and the engine may still have them: what they took from now on, the next
        start would delete. What they took while the round was under way came before the deletion. Queues that are gone
        after a restart in any case go on, so that an exchange which leads to them does."""
        await self._until_calm()
        for _, decision in decided:
            if not isinstance(decision, Decision):
                continue
            deleted = {entry.name for entry in decision.entries if isinstance(entry, PersistQueueDeleted)}
            for change in decision.changes:
                if isinstance(change, DropQueue) and change.name in deleted:
                    with suppress(FaultError):  # its log has failed, and takes nothing more anyway
                        self.shard.shut_queue(change.id)

    async def _reopen(self, decided: list[_Decided]) -> None:
        """Queues that were to be deleted as empty are there after a restart, so that they take messages until then."""
        await self._until_calm()
        for waiting, decision in decided:
            if not (_is_if_empty(waiting.work) and isinstance(decision, Decision)):
                continue
            for change in decision.changes:
                if isinstance(change, DropQueue) and self.is_applied(change.id):
                    with suppress(FaultError):  # its log has failed, too
                        self.shard.reopen_queue(change.id)

    async def _with_logs(self, decision: Decision) -> Decision | StorageError:
        """Makes the logs of new queues with one of their own, before anything is written down. Without room for them
        this command alone is taken back. Waits for the disk without holding up other virtual hosts. A start
        removes the logs of queues that the definitions do not name."""
        made: list[QueueId] = []
        for change in decision.changes:
            if not (isinstance(change, PutQueue) and change.queue.is_dedicated) or self.is_applied(change.queue.id):
                continue
            try:
                await self.apart(self.shard.dedicate_queue, change.queue.id)
            except StorageError as error:
                take_back(self.topology, decision)
                for queue_id in made:
                    await self.apart(self.shard.delete_queue, queue_id)
                return error
            made.append(change.queue.id)
        return decision

    async def _append(self, entries: list[Entry]) -> None:
        """What was decided waits for room on a full disk, and whoever asked with it: the state is ahead of the file."""
        while True:
            try:
                return await self._definitions.append(entries)
            except DiskFullError:
                if self.stopped is not None:
                    raise
                await asyncio.sleep(self._room_seconds)

    def _decide(self, work: Command | Callable[[], object]) -> Decision | RefusedError | None:
        """None for a look."""
        if callable(work):
            return None
        shut = self._applied(work.name) if _is_if_empty(work) else None
        try:
            return decide(self.topology, self._with_counts(work))
        except RefusedError as refusal:
            if shut is not None:
                self.shard.reopen_queue(shut)
            return refusal

    async def _perform_all(self, decided: list[_Decided]) -> list[tuple[_Waiting, _Result]]:
        """On a thread: deleting and purging write to the log, and a disk that hangs must not hold up the event loop,
        which serves all virtual hosts. Until it is done the topology does not change and no look is taken."""

        def perform() -> list[tuple[_Waiting, _Result]]:
            return [(waiting, self._perform(decision)) for waiting, decision in decided]

        if any(isinstance(decision, Decision) and decision.changes for _, decision in decided):
            return await asyncio.to_thread(perform)
        return perform()

    def _perform(self, decision: Decision | RefusedError | StorageError | None) -> _Result:
        if not isinstance(decision, Decision):
            return decision
        return Outcome(decision.answer, apply_changes(self.shard, decision.changes))

    async def _look(self, waiting: _Waiting) -> object:
        assert callable(waiting.work)
        try:
            return await asyncio.to_thread(waiting.work) if isinstance(waiting.work, _Apart) else waiting.work()
        except (RefusedError, FaultError) as error:
            # It changed nothing: a fault is that of whoever looks, as it is when no round is under way.
            waiting.refuse(error)
            return None

    def _with_counts(self, command: Command) -> Command:
        """Counts are looked up only for commands that depend on them."""
        if isinstance(command, DeleteQueue) and (command.if_unused or command.if_empty):
            queue_id = self._applied(command.name)
            if command.if_empty and queue_id is not None:
                # What is published until the deletion is on the disk must not be stored in it.
                counts = self.shard.shut_empty_queue(queue_id)
            else:
                counts = self._counts_now(command.name)
            message_count = counts.ready_count + counts.unsettled_count
            return replace(command, consumer_count=counts.consumer_count, message_count=message_count)
        if isinstance(command, QueueUnused):
            return replace(command, consumer_count=self._counts_now(command.name).consumer_count)
        return command

    def _counts_now(self, name: QueueName) -> QueueCounts:
        """A queue declared in this very round is not in the engine yet, and so has no consumers."""
        queue_id = self._applied(name)
        return NO_COUNTS if queue_id is None else self.shard.queue_counts([queue_id])[0]

    def _applied(self, name: QueueName) -> QueueId | None:
        """A queue of the topology that the engine has."""
        queue = self.topology.queues.get(name)
        return queue.id if queue is not None and self.is_applied(queue.id) else None

    async def _wait(self, work: Command | Callable[[], object]) -> Any:
        if self.stopped is not None:
            raise self._refusal()
        await self._room.acquire()
        if self.stopped is not None:
            # It stopped while this caller waited outside; the next one outside must hear of it too.
            self._room.release()
            raise self._refusal()
        waiting = _Waiting(work, asyncio.get_running_loop().create_future())
        self._inbox.append(waiting)
        self._has_work.set()
        return await waiting.answer

    def _take_all(self) -> list[_Waiting]:
        taken, self._inbox = self._inbox, []
        for _ in taken:
            self._room.release()
        return taken

    def _stop(self, cause: str) -> None:
        if self.stopped is None:
            self.stopped = StoppedError(self._thing(), cause)
        self._ended.set()
        for waiting in (*self._round, *self._take_all()):
            waiting.refuse(self._refusal())

    def _refusal(self) -> StoppedError:
        """One for each caller: an exception carries the traceback of whoever raised it."""
        assert self.stopped is not None
        return StoppedError(self.stopped.thing, self.stopped.cause)

    def _thing(self) -> Thing:
        return Thing("vhost", self.topology.vhost)


def _is_if_empty(work: Command | Callable[[], object]) -> TypeGuard[DeleteQueue]:
    return isinstance(work, DeleteQueue) and work.if_empty
