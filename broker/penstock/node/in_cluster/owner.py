"""The owner of a virtual host in a cluster: commands go to the cluster's metadata, and messages to the leader.

The topology is the one that this broker has applied. Only the broker that leads the host's shard has its messages: the
others refuse what needs them, and name the leader.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, NoReturn, ParamSpec, Protocol, TypeVar

from penstock.cluster.meta.commands import GrowVhost, InVhost, Joined, MetaAnswer
from penstock.cluster.meta.log import UnknownOutcomeError
from penstock.cluster.record import BrokerName
from penstock.kit.tasks import spawn
from penstock.metadata import PendingTopology, VhostTopology, decide, entries_of, queues, streams
from penstock.metadata.commands import Command, DeleteQueue, DeleteStream, PurgeQueue, QueueUnused
from penstock.metadata.effects import QueueDeclared, SettingsEntry
from penstock.metadata.policy_rules import effective_queue
from penstock.model.errors import (
    NotFoundError,
    NotLedError,
    RefusedError,
    StoppedError,
    Thing,
)
from penstock.model.names import ConnectionId, QueueName
from penstock.model.records import Queue
from penstock.native import QueueCounts, Replica, Shard, VhostCounts
from penstock.node.in_cluster.metadata import CLEANING, Metadata
from penstock.node.in_cluster.shared_question import SharedQuestion
from penstock.node.in_cluster.term import Term
from penstock.storage.backup import ClosableLog
from penstock.storage.definitions_amqp import NewDefinitions
from penstock.storage.entries import change_of
from penstock.vhost.apply import apply_changes
from penstock.vhost.batches import NO_COUNTS, Outcome
from penstock.vhost.owner import STALL_SECONDS
from penstock.vhost.ports import DefinitionsBackup
from penstock.vhost.threads import VhostThreads

LEADER_S: Final = 5.0
"""A client waits for this time while no broker is known to lead."""
UNREACHABLE_S: Final = 1.0
"""A client waits for this time for another leader than one that cannot be reached."""
LOOK_S: Final = 0.1
T = TypeVar("T")
P = ParamSpec("P")


class LeaderPlace(Protocol):
    """Where the leader of the vhost's shard is, as far as this broker knows."""

    def leader(self) -> BrokerName | None:
        """Return the broker that leads; None while none does that is known."""

    async def find_leader(self) -> BrokerName | None:
        """Do the same, and ask for it where there is no replica."""

    @property
    def fault(self) -> str | None:
        """Why this broker's replica takes no more part, or None."""

    async def readable_replica(self, shard: int) -> Replica | None:
        """Return this broker's replica of a shard, if streams may be read from it."""

    async def begin_backup(self) -> ClosableLog:
        """Fix a copy of the logs with all that was confirmed before. Raises PreconditionFailedError, StorageError."""


class ClusterOwner:
    """Implements `vhost.ports.VhostOwner`.

    Invariants: `_term` is there while this broker leads and the engine has the topology of the term's beginning;
    `_delivers` is whether its messages can be delivered.
    """

    def __init__(self, topology: VhostTopology, metadata: Metadata, place: LeaderPlace) -> None:
        self.topology = topology
        self.stopped: StoppedError | None = None
        self._metadata = metadata
        self._place = place
        self._term: Term | None = None
        self._delivers = False
        self._changed = asyncio.Event()
        self._busy_count = 0
        self._threads = VhostThreads()
        self._served = SharedQuestion(self._ask_leader)
        self._wanted: list[QueueName] | None = None
        """The queues whose counts the look needs that is being taken, while that is found out."""
        self._remote: Mapping[QueueName, QueueCounts] = {}
        """The leader's counts, while a look is taken."""
        self._of_term: set[asyncio.Timeout] = set()
        """Limits of commands that were decided by this term's messages and consumers."""

    # ------------------------------------------------------------ the term

    def begin_term(self, term: Term, *, delivers: bool) -> None:
        self._term = term
        self._delivers = delivers
        self.wake()

    def set_delivers(self, *, delivers: bool) -> None:
        """Say whether the term may deliver. A new leader may publish before it may deliver."""
        if self._delivers != delivers:
            self._delivers = delivers
            self.wake()

    def end_term(self) -> None:
        self._term = None
        self._delivers = False
        ending, self._of_term = self._of_term, set()
        for limit in ending:
            limit.reschedule(asyncio.get_running_loop().time())
        self.wake()

    def wake(self) -> None:
        """Have clients that wait for a leader look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def shard(self) -> Shard:
        if self._term is None:
            self._refuse()
        return self._term.shard

    @property
    def is_applying(self) -> bool:
        return self._term is not None and self._term.is_applying

    @property
    def is_busy(self) -> bool:
        return self._busy_count > 0

    @property
    def fault(self) -> str | None:
        if self.stopped is not None:
            return self.stopped.cause
        return self._place.fault or (self._term.shard.fault if self._term is not None else None)

    def number_of(self, connection: ConnectionId) -> ConnectionId:
        return self._metadata.number_of(connection)

    # ------------------------------------------------------------ commands

    async def submit(self, command: Command) -> Outcome:
        """Return when the command is committed and applied here, and the engine of the broker that leads has it.

        A client that hears of a binding may publish there next, and what is routed nowhere is confirmed and dropped.

        Raises the command's RefusedError, UnknownOutcomeError, and NotLedError for one that depends on messages.
        """
        self._check_open()
        if isinstance(command, PurgeQueue):
            return await self._purge(command)
        self._busy_count += 1
        try:
            return await self._submit(command)
        finally:
            self._busy_count -= 1

    async def _submit(self, command: Command) -> Outcome:
        dropped_count = self._messages_of(command)
        prepared, shut = self._with_counts(command)
        try:
            answer = await self._ask(InVhost(self.topology.vhost, prepared), is_of_term=prepared is not command)
        except RefusedError:  # after a fault the deletion may still be committed: the queue takes nothing in this term
            if shut is not None and self._term is not None:
                await self.apart(self._term.shard.reopen_queue, shut)
            raise
        assert not isinstance(answer, Joined)
        term = self._term
        if term is not None:
            await term.applied()
            if isinstance(answer, QueueDeclared) and not answer.is_new and self._expires(answer.queue):
                await self.apart(term.shard.use_queue, answer.queue.id)
        elif not isinstance(command, CLEANING):
            await self._served.answered()
        return Outcome(answer, dropped_count)

    async def _ask(self, command: InVhost, *, is_of_term: bool) -> MetaAnswer:
        """Return the metadata's answer. Raises as `Metadata.submit`.

        A command of a term is asked for until the term ends: a later one would delete a queue whose messages and
        consumers the next leader has.
        """
        if not is_of_term:
            return await self._metadata.submit(command)
        try:
            async with asyncio.timeout(None) as limit:
                self._of_term.add(limit)
                try:
                    return await self._metadata.submit(command)
                finally:
                    self._of_term.discard(limit)
        except TimeoutError as error:
            raise UnknownOutcomeError from error

    async def applied(self) -> None:
        """Return when the engine has what is applied here, if this broker leads."""
        if self._term is not None:
            await self._term.applied()

    async def _ask_leader(self) -> None:
        """Wait for the broker that leads. One that leads later has everything from the beginning of its term."""
        asked: BrokerName | None = self._metadata.me
        while (leader := self._place.leader()) not in (None, self._metadata.me, asked):
            assert leader is not None
            await self._served_by(leader)
            asked = leader

    async def _served_by(self, leader: BrokerName) -> None:
        """Wait for a broker while it leads. One that stands still answers late, and is missed before."""
        asking = spawn(self._metadata.served_by(leader, self.topology.vhost), name="question to a leader")
        try:
            while not asking.done() and self._place.leader() == leader:
                await asyncio.wait([asking], timeout=LOOK_S)
        finally:
            asking.cancel()

    def _expires(self, queue: Queue) -> bool:
        return effective_queue(self.topology, queue).expires_ms is not None

    async def _purge(self, command: PurgeQueue) -> Outcome:
        """Drop the ready messages: no other broker has to know."""
        await (await self._serving(delivers=True)).applied()
        wanted = replace(command, connection=self.number_of(command.connection))
        decision = decide(PendingTopology(self.topology), wanted)
        return Outcome(decision.answer, await self.apart(apply_changes, self.shard, decision.changes))

    def _messages_of(self, command: Command) -> int:
        """Return how many messages a deletion drops, as far as this broker has them."""
        match command:
            case DeleteQueue(name) if name in self.topology.queues:
                names = [name]
            case DeleteStream(name):
                try:
                    names = list(streams.partitions(self.topology, name))
                except RefusedError:
                    return 0
            case _:
                return 0
        return sum(counts.ready_count + counts.unacked_count for counts in self.counts(names))

    def _with_counts(self, command: Command) -> tuple[Command, int | None]:
        """Return a command with the counts that it depends on, and the queue that was shut for it.

        Raises LockedError for an exclusive queue of another connection.
        """
        queue = self.topology.queues.get(command.name) if isinstance(command, DeleteQueue | QueueUnused) else None
        if queue is None:
            return command, None
        if isinstance(command, DeleteQueue) and (command.if_empty or command.if_unused):
            # Its client may be relayed: the owner of an exclusive queue is the connection at that other broker.
            command = replace(command, connection=self.number_of(command.connection))
            queues.get(self.topology, command.name, command.connection)
        if isinstance(command, DeleteQueue) and command.if_empty:
            # A message that is published until the deletion is committed must not be stored in it.
            shut = self.shard.shut_empty_queue(queue.id)
            return replace(command, consumer_count=shut.consumer_count, ready_count=shut.ready_count), queue.id
        if isinstance(command, DeleteQueue) and command.if_unused:
            return replace(command, consumer_count=self.shard.queue_counts([queue.id])[0].consumer_count), None
        if isinstance(command, QueueUnused):
            consumers = self.shard.queue_counts([queue.id])[0].consumer_count
            is_expired = queue.id == command.id and self.shard.is_unused(command.id)
            return replace(command, consumer_count=consumers, is_expired=is_expired), None
        return command, None

    # ------------------------------------------------------------ reading

    async def read(self, look: Callable[[], T]) -> T:
        """Return what `look` returns, which reads the topology that is applied here."""
        self._check_open()
        return look()

    async def read_serving(self, look: Callable[[], T]) -> T:
        """Do the same where this broker leads, once the engine has the topology. Raises NotLedError."""
        self._check_open()
        term = await self._serving()
        try:
            seen = look()
        except NotFoundError:
            await self._metadata.catch_up()
            seen = look()
        await term.applied()
        return seen

    async def read_delivering(self, look: Callable[[], T]) -> T:
        """Do the same once the messages of the term can be delivered: before, there seem to be none."""
        self._check_open()
        await self._serving(delivers=True)
        return await self.read_serving(look)

    async def find_replica(self, shard: int) -> Replica | None:
        """Return this broker's replica of a shard, if streams may be read from it. None where this broker leads."""
        self._check_open()
        if self._term is not None or self._place.leader() == self._metadata.me:
            return None
        return await self._place.readable_replica(shard)

    async def other_leader(self, unreachable: str) -> BrokerName | None:
        """Return the other broker that leads; None where this one does, or none is known after a while.

        A leader that is unreachable is returned again only if no other one leads within `UNREACHABLE_S`.
        """
        patient_until = asyncio.get_running_loop().time() + UNREACHABLE_S
        with suppress(TimeoutError):
            async with asyncio.timeout(LEADER_S):
                while self._term is None:
                    self._check_open()
                    leader = await self._place.find_leader()
                    is_patient = leader == unreachable and asyncio.get_running_loop().time() < patient_until
                    if leader not in (None, self._metadata.me) and not is_patient:
                        return leader
                    await self._until_woken()
        return None

    async def check_leader(self, broker: str) -> None:
        """Return unless it is known that another broker leads than this one. Raises NotLedError then."""
        if await self._place.find_leader() not in (None, broker):
            self._refuse()

    async def read_engine(self, look: Callable[[], T]) -> T:
        """Return what `look` returns. Without the lead, the counts of queues are the ones that the leader says."""
        self._check_open()
        if self._term is None:
            return await self._read_remotely(look)
        if self._term is not None:
            await self._term.applied()
        while self._term is not None and self._term.shard.is_stalled:  # noqa: ASYNC110 (a lock in the native module)
            await asyncio.sleep(STALL_SECONDS)
        return look()

    async def _read_remotely(self, look: Callable[[], T]) -> T:
        """Take a look twice: the first one shows the queues whose counts it needs, for which the leader is asked."""
        leader = self.other_leader_now()
        found: Mapping[QueueName, QueueCounts] = {}
        if leader is not None:
            self._wanted = wanted = list[QueueName]()
            try:
                seen = look()
            finally:
                self._wanted = None
            if not wanted:
                return seen
            found = await self._metadata.counts_of(leader, self.topology.vhost, wanted)
            self._check_open()
        self._remote = found
        try:
            return look()
        finally:
            self._remote = {}

    def counts(self, names: list[QueueName]) -> list[QueueCounts]:
        """Return counts, without the lead the ones that the leader has said for the look that is being taken."""
        own = self.own_counts(names)
        if own is not None:
            return own
        if self._wanted is not None:
            self._wanted += names
        return [self._remote.get(name, NO_COUNTS) for name in names]

    def own_counts(self, names: list[QueueName]) -> list[QueueCounts] | None:
        """Return the counts of queues that this broker leads; None where it does not."""
        if self._term is None:
            return None
        return self._term.shard.queue_counts([self.topology.queues[name].id for name in names])

    def own_totals(self) -> VhostCounts | None:
        """Return the messages in all queues that this broker leads; None where it does not."""
        return None if self._term is None else self._term.shard.totals()

    def other_leader_now(self) -> BrokerName | None:
        """Return the other broker that leads, as far as this one knows."""
        leader = self._place.leader()
        return None if leader == self._metadata.me else leader

    async def apart(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._threads.run(work, *args, **kwargs)

    # ------------------------------------------------------------ as a whole

    async def begin_backup(self) -> tuple[DefinitionsBackup, ClosableLog]:
        """Fix the log, and then the definitions: no queue is missing in them that has messages there."""
        self._check_open()
        log = await self._place.begin_backup()
        try:
            await self._metadata.latest()
            stored = (entry for entry in entries_of(self.topology) if not isinstance(entry, SettingsEntry))
            changes = [change_of(entry) for entry in stored]
            return await asyncio.to_thread(NewDefinitions, changes), log
        except BaseException:
            log.close()
            raise

    async def grow(self, shard_count: int) -> None:
        """Return when the cluster knows of the shards. A queue is declared there once the leader has them."""
        await self._metadata.submit(GrowVhost(self.topology.vhost, shard_count))

    async def close(self, cause: str) -> None:
        """Take nothing more."""
        if self.stopped is None:
            self.stopped = StoppedError(self._thing(), cause)
        self.end_term()

    # ------------------------------------------------------------ parts

    async def _serving(self, *, delivers: bool = False) -> Term:
        """Return the term, which begins within a moment if this broker is about to lead. Raises NotLedError."""
        try:
            async with asyncio.timeout(LEADER_S):
                while self._term is None or (delivers and not self._delivers):
                    if self._place.leader() not in (None, self._metadata.me):
                        self._refuse()
                    self._check_open()
                    await self._until_woken()
                return self._term
        except TimeoutError:
            self._refuse()

    async def _until_woken(self) -> None:
        """Wait a moment for a change of the leader."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await self._changed.wait()

    def _check_open(self) -> None:
        if self.stopped is not None:
            raise StoppedError(self.stopped.thing, self.stopped.cause)

    def _refuse(self) -> NoReturn:
        leader = self._place.leader()
        if leader is None or leader == self._metadata.me:
            raise NotLedError(self._thing())
        addresses = self._metadata.addresses_of(leader)
        raise NotLedError(self._thing(), leader, addresses.grpc, addresses.amqp)

    def _thing(self) -> Thing:
        return Thing("vhost", self.topology.vhost)
