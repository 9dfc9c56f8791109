"""Batches of requests to a vhost.

A batch is decided on a pending copy of the topology, then applied to the engine and committed, or dropped. The vhost's
owner appends it and answers the requests.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, TypeAlias, TypeGuard

from penstock.metadata import PendingTopology, VhostTopology, decide, take_back
from penstock.metadata.commands import (
    Command,
    DeletePolicy,
    DeleteQueue,
    QueueUnused,
    SetDefaultQueueType,
    SetLimits,
    SetPolicy,
)
from penstock.metadata.effects import (
    Answer,
    Decision,
    DropQueue,
    Entry,
    PersistExchangeDeleted,
    PersistQueueDeleted,
    PersistUnbound,
    PutQueue,
)
from penstock.model.errors import FaultError, RefusedError, StorageError
from penstock.model.names import QueueId, QueueName
from penstock.native import QueueCounts, Shard
from penstock.vhost.apply import apply_changes

NO_COUNTS: Final = QueueCounts()
_LONG: Final = (SetPolicy, DeletePolicy)
_ALONE: Final = (*_LONG, SetLimits, SetDefaultQueueType)
Work: TypeAlias = Command | Callable[[], object]
"""A command to decide, or a look at the vhost to take when its batch is committed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`dropped_count` is the number of messages that were deleted or purged."""

    answer: Answer
    dropped_count: int = 0


@dataclass(slots=True)
class Request:
    """Work, and the future with its answer."""

    work: Work
    answer: asyncio.Future[Any]

    def resolve(self, answer: object) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)

    def refuse(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


Decided: TypeAlias = Decision | RefusedError | StorageError | None
"""None for a look."""
Result: TypeAlias = Outcome | RefusedError | StorageError | None


@dataclass(slots=True)
class Batch:
    """Requests with what was decided about each. `logs` are the queues whose logs were made for this batch."""

    topology: PendingTopology
    requests: list[Request] = field(default_factory=list)
    decided: list[Decided] = field(default_factory=list)
    logs: list[QueueId] = field(default_factory=list)

    @property
    def decisions(self) -> list[Decision]:
        return [decided for decided in self.decided if isinstance(decided, Decision)]

    @property
    def entries(self) -> list[Entry]:
        return [entry for decision in self.decisions for entry in decision.entries]

    @property
    def needs_little_space(self) -> bool:
        """Whether it appends nothing, or deletions alone: those are few bytes, for which a full disk often has room."""
        small = (PersistQueueDeleted, PersistExchangeDeleted, PersistUnbound)
        return all(isinstance(entry, small) for entry in self.entries)

    def unwritten(self) -> list[Request]:
        """Return the requests that cannot be answered without an append."""
        pairs = zip(self.requests, self.decided, strict=True)
        return [request for request, decided in pairs if isinstance(decided, Decision) and decided.entries]


class OnThread(Protocol):
    """Runs a call that may wait for the disk on a thread."""

    def __call__(self, work: Callable[[QueueId], Any], queue_id: QueueId, /) -> Awaitable[Any]: ...


class Batches:
    """Decides, applies and drops the batches of one vhost, one at a time."""

    def __init__(self, committed: VhostTopology, shard: Shard, on_thread: OnThread) -> None:
        self._committed = committed
        self._shard = shard
        self._on_thread = on_thread

    async def decide(self, requests: Sequence[Request], *, makes_logs: bool = True) -> Batch:
        """Decide requests from the first on.

        A batch ends before a deletion that depends on the contents of a queue of the same batch, because the engine
        does not have that queue yet. A change of policies, limits or the default queue type is a batch of its own: its
        file and the definitions cannot be written in one step.
        """
        batch = Batch(PendingTopology(self._committed))
        for request in requests:
            work = request.work
            if _is_if_empty(work) and work.name in batch.topology.queues and self._applied(batch, work.name) is None:
                break
            is_alone = isinstance(work, _ALONE)
            if is_alone and batch.requests:
                break
            # All names are matched with a changed policy.
            is_long = isinstance(work, _LONG)
            decided = await asyncio.to_thread(self._decide, batch, work) if is_long else self._decide(batch, work)
            if makes_logs and isinstance(decided, Decision) and _puts_dedicated(decided):
                decided = await self._with_logs(batch, decided)
            batch.requests.append(request)
            batch.decided.append(decided)
            if is_alone:
                break
        return batch

    async def apply(self, batch: Batch) -> list[tuple[Request, Result]]:
        """Change the engine, then the topology.

        It runs on a thread when the engine changes: deletions and purges write to the log, and a disk that hangs must
        not block the event loop, which serves all vhosts.
        """

        def perform() -> list[Result]:
            return [self._perform(decided) for decided in batch.decided]

        if any(decision.changes for decision in batch.decisions):
            results = await asyncio.to_thread(perform)
        else:
            results = perform()
        batch.topology.commit()
        return list(zip(batch.requests, results, strict=True))

    async def drop(self, batch: Batch) -> None:
        """Undo what was prepared in the engine for a batch of which nothing is on the disk."""
        if batch.logs:
            batch.topology.keep_ids()
        await self._remove_logs(batch.logs)
        for request, decided in zip(batch.requests, batch.decided, strict=True):
            if not (_is_if_empty(request.work) and isinstance(decided, Decision)):
                continue
            for change in decided.changes:
                if isinstance(change, DropQueue) and self._is_applied(change.id, change.name):
                    with suppress(FaultError):  # its log has failed, too
                        self._shard.reopen_queue(change.id)

    def shut_deleted(self, batch: Batch) -> None:
        """Close queues whose deletions may be on the disk: the next start would delete their new messages.

        Queues that a restart deletes in any case stay open, and so do exchanges that route to them.
        """
        for decision in batch.decisions:
            deleted = {entry.name for entry in decision.entries if isinstance(entry, PersistQueueDeleted)}
            for change in decision.changes:
                if isinstance(change, DropQueue) and change.name in deleted:
                    with suppress(FaultError):  # its log has failed, and takes nothing more anyway
                        self._shard.shut_queue(change.id)

    def _decide(self, batch: Batch, work: Work) -> Decided:
        if callable(work):
            return None
        shut = self._applied(batch, work.name) if _is_if_empty(work) else None
        try:
            return decide(batch.topology, self._with_counts(batch, work))
        except RefusedError as refusal:
            if shut is not None:
                self._shard.reopen_queue(shut)
            return refusal

    async def _with_logs(self, batch: Batch, decision: Decision) -> Decision | StorageError:
        """Create the logs of new queues that have one of their own, before anything is appended.

        Without space for them only this command is refused. It waits for the disk without delaying other vhosts.
        """
        made: list[QueueId] = []
        for change in decision.changes:
            if not (isinstance(change, PutQueue) and change.queue.is_dedicated):
                continue
            if self._is_applied(change.queue.id, change.queue.name):
                continue
            try:
                await self._on_thread(self._shard.dedicate_queue, change.queue.id)
            except StorageError as error:
                batch.topology.keep_ids()
                take_back(batch.topology, decision)
                await self._remove_logs(made)
                return error
            made.append(change.queue.id)
        batch.logs += made
        return decision

    async def _remove_logs(self, queue_ids: Sequence[QueueId]) -> None:
        for queue_id in queue_ids:
            with suppress(FaultError):  # the next start removes a log that the definitions do not name
                await self._on_thread(self._shard.delete_queue, queue_id)

    def _perform(self, decided: Decided) -> Result:
        if not isinstance(decided, Decision):
            return decided
        return Outcome(decided.answer, apply_changes(self._shard, decided.changes))

    def _with_counts(self, batch: Batch, command: Command) -> Command:
        """Return the command with the counts of its queue, for commands that depend on them."""
        if isinstance(command, DeleteQueue) and (command.if_unused or command.if_empty):
            queue_id = self._applied(batch, command.name)
            if command.if_empty and queue_id is not None:
                # A message that is published until the deletion is on the disk must not be stored in it.
                counts = self._shard.shut_empty_queue(queue_id)
            else:
                counts = self._counts_now(batch, command.name)
            return replace(command, consumer_count=counts.consumer_count, ready_count=counts.ready_count)
        if isinstance(command, QueueUnused):
            queue_id = self._applied(batch, command.name)
            is_expired = queue_id == command.id and self._shard.is_unused(command.id)
            consumer_count = self._counts_now(batch, command.name).consumer_count
            return replace(command, consumer_count=consumer_count, is_expired=is_expired)
        return command

    def _counts_now(self, batch: Batch, name: QueueName) -> QueueCounts:
        """Return the queue's counts.

        A queue that is declared in this batch is not in the engine yet, so it has no consumers.
        """
        queue_id = self._applied(batch, name)
        return NO_COUNTS if queue_id is None else self._shard.queue_counts([queue_id])[0]

    def _applied(self, batch: Batch, name: QueueName) -> QueueId | None:
        """Return the number of a queue of the pending copy that the engine has."""
        queue = batch.topology.queues.get(name)
        return queue.id if queue is not None and self._is_applied(queue.id, name) else None

    def _is_applied(self, queue_id: QueueId, name: QueueName) -> bool:
        queue = self._committed.queues.get(name)
        return queue is not None and queue.id == queue_id


def _puts_dedicated(decision: Decision) -> bool:
    return any(isinstance(change, PutQueue) and change.queue.is_dedicated for change in decision.changes)


def _is_if_empty(work: Work) -> TypeGuard[DeleteQueue]:
    return isinstance(work, DeleteQueue) and work.if_empty
