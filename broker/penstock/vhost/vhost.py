"""One vhost's verbs: declare, bind, delete, list, and admit to publishing and consuming.

The services call them. A verb checks the rights that it gets, then passes a command to the owner or reads the topology.
It knows no protocol and never sees a message.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from penstock.kit.settings import PAGE_SIZE_MAX
from penstock.metadata import VhostTopology, check_shard_count, entries_of, exchanges, queues, trial_of
from penstock.metadata.binding_index import BindingPlace
from penstock.metadata.binding_pages import binding_page
from penstock.metadata.commands import (
    Bind,
    Command,
    ConnectionClosed,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeletePolicy,
    DeleteQueue,
    PurgeQueue,
    QueueUnused,
    SetDefaultQueueType,
    SetLimits,
    SetPolicy,
    Unbind,
)
from penstock.metadata.effects import Entry, ExchangeDeclared, QueueDeclared
from penstock.metadata.policies import Policy
from penstock.model.arguments import Arguments
from penstock.model.errors import NotFoundError, Thing
from penstock.model.limits import Holder, Limits, thing_of
from penstock.model.names import (
    SERVER_NAMED_PREFIX,
    ConnectionId,
    ExchangeName,
    QueueId,
    QueueName,
    VhostName,
)
from penstock.model.records import (
    ALTERNATE_KEYS,
    X_DEAD_LETTER_EXCHANGE,
    Access,
    Binding,
    Exchange,
    ExchangeKind,
    Queue,
    QueueKind,
)
from penstock.native import QueueCounts, VhostCounts
from penstock.storage.backup import ClosableLog
from penstock.vhost.batches import NO_COUNTS, Outcome
from penstock.vhost.effective import EffectiveSettings
from penstock.vhost.leases import Leases
from penstock.vhost.ports import DefinitionsBackup, VhostOwner
from penstock.vhost.rights import Rights
from penstock.vhost.stages import Stages
from penstock.vhost.streams import Streams


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """A queue with its counts; in listings also with the arguments and policies that have an effect."""

    queue: Queue
    counts: QueueCounts = NO_COUNTS
    effective_arguments: Arguments = field(default_factory=dict)
    policy: str = ""
    operator_policy: str = ""

    @property
    def ready_count(self) -> int:
        return self.counts.ready_count

    @property
    def unacked_count(self) -> int:
        return self.counts.unacked_count

    @property
    def ready_bytes(self) -> int:
        return self.counts.ready_bytes

    @property
    def unacked_bytes(self) -> int:
        return self.counts.unacked_bytes

    @property
    def consumer_count(self) -> int:
        return self.counts.consumer_count


@dataclass(frozen=True, slots=True)
class VhostBackup:
    """A vhost at one point: its definitions and its log agree. It must be closed, written or not."""

    name: VhostName
    definitions: DefinitionsBackup
    log: ClosableLog

    def close(self) -> None:
        self.definitions.close()
        self.log.close()


class Vhost:
    """`make_token` returns 22 random URL-safe characters for the name of a queue that the client did not name."""

    def __init__(self, owner: VhostOwner, make_token: Callable[[], str]) -> None:
        self.name: VhostName = owner.topology.vhost
        self._owner = owner
        self._topology = owner.topology
        self._make_token = make_token
        self._effective = EffectiveSettings(owner.topology)
        self.streams = Streams(owner)
        self.leases = Leases(owner)
        self.stages = Stages(owner)

    # ------------------------------------------------------------ queues

    async def declare_queue(self, rights: Rights, command: DeclareQueue) -> QueueStatus:
        """Declare a queue, filling in the command's connection and randomness.

        A passive declare needs only access to the vhost.
        """
        command = replace(command, connection=rights.connection, random=self._make_token())
        if command.passive:
            self._require_entry(rights)
        else:
            self._require_queue(rights, command)
        outcome = await self._owner.submit(command)
        assert isinstance(outcome.answer, QueueDeclared)
        if outcome.answer.is_new:
            return QueueStatus(outcome.answer.queue)
        return await self._owner.read_engine(lambda: self._status_now(command.name))

    def _require_queue(self, rights: Rights, command: DeclareQueue) -> None:
        """With a dead-letter exchange: read on the queue and write on that exchange too."""
        queue = self._queue(command.name or SERVER_NAMED_PREFIX + command.random)
        rights.require(Access.CONFIGURE, queue)
        exchange = command.arguments.get(X_DEAD_LETTER_EXCHANGE)
        if isinstance(exchange, str):
            rights.require(Access.READ, queue)
            rights.require(Access.WRITE, self._exchange(ExchangeName(exchange)))

    async def delete_queue(
        self, rights: Rights, name: QueueName, *, if_unused: bool = False, if_empty: bool = False
    ) -> int:
        """Delete a queue and return the number of its messages."""
        rights.require(Access.CONFIGURE, self._queue(name))
        command = DeleteQueue(name, rights.connection, if_unused=if_unused, if_empty=if_empty)
        return (await self._owner.submit(command)).dropped_count

    async def purge_queue(self, rights: Rights, name: QueueName) -> int:
        """Drop the ready messages and return their number."""
        rights.require(Access.READ, self._queue(name))
        return (await self._owner.submit(PurgeQueue(name, rights.connection))).dropped_count

    async def queue_status(self, rights: Rights, name: QueueName) -> QueueStatus:
        self._require_entry(rights)
        return await self._owner.read_engine(lambda: self._status_now(name))

    async def list_queues(
        self, rights: Rights, *, after: str | None = None, limit: int = PAGE_SIZE_MAX
    ) -> list[QueueStatus]:
        """Return a page in the order of names, beginning after the name `after`; at most PAGE_SIZE_MAX."""
        self._require_entry(rights)
        return await self._owner.read_engine(lambda: self._queue_page(after, min(limit, PAGE_SIZE_MAX)))

    # ------------------------------------------------------------ exchanges

    async def declare_exchange(self, rights: Rights, command: DeclareExchange) -> ExchangeDeclared:
        """With an alternate exchange: read on the exchange and write on the alternate too."""
        if command.passive:
            self._require_entry(rights)
        else:
            self._require_declare(rights, command)
        outcome = await self._owner.submit(command)
        assert isinstance(outcome.answer, ExchangeDeclared)
        return outcome.answer

    async def delete_exchange(self, rights: Rights, name: ExchangeName, *, if_unused: bool = False) -> None:
        rights.require(Access.CONFIGURE, self._exchange(name))
        await self._owner.submit(DeleteExchange(name, if_unused=if_unused))

    async def list_exchanges(
        self, rights: Rights, *, after: str | None = None, limit: int = PAGE_SIZE_MAX
    ) -> list[Exchange]:
        """Return a page in the order of names. The default exchange, whose name is empty, comes first."""
        self._require_entry(rights)
        names = self._topology.exchange_names.page(after, min(limit, PAGE_SIZE_MAX))
        return [self._topology.exchanges[ExchangeName(name)] for name in names]

    # ------------------------------------------------------------ bindings

    async def bind(self, rights: Rights, binding: Binding) -> None:
        self._require_binding(rights, binding)
        await self._owner.submit(Bind(binding, rights.connection))

    async def unbind(self, rights: Rights, binding: Binding) -> None:
        self._require_binding(rights, binding)
        await self._owner.submit(Unbind(binding, rights.connection))

    async def list_bindings(
        self,
        rights: Rights,
        *,
        source: ExchangeName | None = None,
        destination: str | None = None,
        after: BindingPlace | None = None,
        limit: int = PAGE_SIZE_MAX,
    ) -> list[Binding]:
        """Return a page, beginning after the place `after`; at most PAGE_SIZE_MAX.

        Both names narrow the list. A destination is a queue's or an exchange's name. The default exchange has none.
        """
        self._require_entry(rights)
        return binding_page(self._topology, source, destination, after, min(limit, PAGE_SIZE_MAX))

    # ------------------------------------------------------------ policies

    async def set_policy(self, rights: Rights, policy: Policy, *, is_operator: bool) -> None:
        rights.require_policymaker(Thing("policy", policy.name, self.name), is_operator=is_operator)
        await self._owner.submit(SetPolicy(policy, is_operator))

    async def delete_policy(self, rights: Rights, name: str, *, is_operator: bool) -> None:
        rights.require_policymaker(Thing("policy", name, self.name), is_operator=is_operator)
        await self._owner.submit(DeletePolicy(name, is_operator))

    async def list_policies(self, rights: Rights, *, is_operator: bool) -> list[Policy]:
        """In the order in which they were set first."""
        if not rights.is_administrator:
            self._require_entry(rights)
        return list((self._topology.operator_policies if is_operator else self._topology.policies).values())

    # ------------------------------------------------------------ limits

    @property
    def limits(self) -> Limits:
        return self._topology.limits

    async def set_limits(self, rights: Rights, limits: Limits) -> None:
        rights.require_administrator(thing_of(Holder.VHOST, self.name))
        await self._owner.submit(SetLimits(limits))

    # ------------------------------------------------------------ the default queue type

    @property
    def default_queue_type(self) -> QueueKind:
        return self._topology.default_queue_type

    async def set_default_queue_type(self, rights: Rights, kind: str) -> None:
        """Set the type of queues that are declared without one from now on."""
        rights.require_administrator(Thing("vhost", self.name))
        await self._owner.submit(SetDefaultQueueType(kind))

    # ------------------------------------------------------------ admissions and events

    async def admit_entry(self, rights: Rights) -> None:
        """Admit a client that wants to move messages to the vhost."""
        self._require_entry(rights)
        await self._owner.read_serving(lambda: None)

    async def other_leader(self, unreachable: str) -> str | None:
        """Return the broker that serves clients of the vhost, if another one does. See `VhostOwner.other_leader`."""
        return await self._owner.other_leader(unreachable)

    async def check_leader(self, broker: str) -> None:
        """Return while a broker serves clients of the vhost, as far as this one knows. Raises NotLedError."""
        await self._owner.check_leader(broker)

    async def admit_publish(self, rights: Rights, exchange: ExchangeName) -> bool:
        """Authorize publishing to the exchange, and return whether each routing key needs authorization too.

        The answer holds until permissions or topology change.
        """
        rights.require(Access.WRITE, self._exchange(exchange))
        await self._owner.read_serving(lambda: exchanges.check_publish(self._topology, exchange))
        return self._is_topic(exchange) and rights.is_narrowed(exchange)

    def may_publish_keys(self, rights: Rights, exchange: ExchangeName, keys: Sequence[str]) -> list[bool]:
        """Return which routing keys a principal may publish with to an exchange that it was admitted to."""
        return [rights.may_key(Access.WRITE, exchange, key) for key in keys]

    async def admit_consume(self, rights: Rights, queue: QueueName, *, may_be_stream: bool = False) -> QueueId:
        """Return the engine's number of a queue, for consuming and settling."""
        rights.require(Access.READ, self._queue(queue))
        return await self._owner.read_serving(lambda: self._consumed(queue, rights, may_be_stream=may_be_stream).id)

    async def admit_get(self, rights: Rights, queue: QueueName) -> QueueId:
        """Return the engine's number of a queue, for getting messages one by one."""
        rights.require(Access.READ, self._queue(queue))

        def found() -> QueueId:
            got = queues.get(self._topology, queue, self._owner.number_of(rights.connection))
            queues.check_get(self._topology, got)
            return got.id

        return await self._owner.read_delivering(found)

    def may_have_queues_of(self, connection: ConnectionId) -> bool:
        """Return whether the connection has exclusive queues here, or may have one when a round is committed."""
        return self._owner.is_busy or bool(self._topology.queues_of(self._owner.number_of(connection)))

    async def connection_closed(self, connection: ConnectionId) -> None:
        """Its exclusive queues go."""
        if self.may_have_queues_of(connection):
            await self._owner.submit(ConnectionClosed(connection))

    async def queue_unused(self, name: QueueName, queue_id: QueueId) -> None:
        """Delete an auto-delete queue whose last consumer has left the engine, or one that was unused for its time."""
        await self._owner.submit(QueueUnused(name, queue_id))

    # ------------------------------------------------------------ the whole vhost

    @property
    def queue_count(self) -> int:
        return len(self._topology.queues)

    @property
    def shard_count(self) -> int:
        return self._topology.shard_count

    async def grow(self, shard_count: int) -> None:
        """Add shards; the caller has checked for an administrator."""
        check_shard_count(Thing("vhost", self.name), shard_count, self.shard_count)
        await self._owner.grow(shard_count)

    @property
    def fault(self) -> str | None:
        """Why it takes no more commands or messages, or None."""
        return self._owner.fault

    def totals(self) -> VhostCounts:
        """Return the messages in all queues that are not streams."""
        return self._owner.shard.totals()

    def shard_totals(self) -> list[VhostCounts]:
        """Return the part of it in each shard; dedicated logs are in no shard."""
        return self._owner.shard.shard_totals()

    async def entries(self) -> list[Entry]:
        """Return, as entries, everything that survives a restart."""
        return await self._owner.read(lambda: list(entries_of(self._topology)))

    async def trial(self) -> VhostTopology:
        """Return a copy on which commands can be tried; see `trial_of`."""
        return await self._owner.read(lambda: trial_of(self._topology))

    async def submit(self, command: Command) -> Outcome:
        """Submit a command without a check of permissions; the caller has checked for an administrator."""
        return await self._owner.submit(command)

    async def begin_backup(self) -> "VhostBackup":
        """Begin a backup; the caller has checked for an administrator."""
        return VhostBackup(self.name, *await self._owner.begin_backup())

    async def close(self, cause: str) -> None:
        """End the owner; the shard stays open."""
        await self._owner.close(cause)

    # ------------------------------------------------------------ parts

    def _queue(self, name: str) -> Thing:
        return Thing("queue", name, self.name)

    def _exchange(self, name: str) -> Thing:
        return Thing("exchange", name, self.name)

    def _require_entry(self, rights: Rights) -> None:
        rights.require_entry(Thing("vhost", self.name))

    def _require_declare(self, rights: Rights, command: DeclareExchange) -> None:
        rights.require(Access.CONFIGURE, self._exchange(command.name))
        for key in ALTERNATE_KEYS:
            alternate = command.arguments.get(key)
            if isinstance(alternate, str):
                rights.require(Access.READ, self._exchange(command.name))
                rights.require(Access.WRITE, self._exchange(alternate))

    def _require_binding(self, rights: Rights, binding: Binding) -> None:
        rights.require(Access.WRITE, Thing(binding.destination_kind.value, binding.destination, self.name))
        rights.require(Access.READ, self._exchange(binding.source))
        if self._is_topic(binding.source):
            rights.require_key(Access.READ, self._exchange(binding.source), binding.routing_key)

    def _is_topic(self, name: ExchangeName) -> bool:
        """One that is not there could be declared as one meanwhile."""
        exchange = self._topology.exchanges.get(name)
        return exchange is None or exchange.routing_kind is ExchangeKind.TOPIC

    def _consumed(self, name: QueueName, rights: Rights, *, may_be_stream: bool = False) -> Queue:
        queue = queues.get(self._topology, name, self._owner.number_of(rights.connection))
        if not may_be_stream:
            queues.check_consume(self._topology, queue)
        return queue

    def _status_now(self, name: QueueName) -> QueueStatus:
        queue = self._topology.queues.get(name)
        if queue is None:
            raise NotFoundError(self._queue(name))
        return QueueStatus(queue, self._owner.counts([name])[0], *self._effective.of(queue))

    def _queue_page(self, after: str | None, limit: int) -> list[QueueStatus]:
        names = [QueueName(name) for name in self._topology.queue_names.page(after, limit)]
        counts = self._owner.counts(names)
        page = [self._topology.queues[name] for name in names]
        return [
            QueueStatus(queue, count, *self._effective.of(queue)) for queue, count in zip(page, counts, strict=True)
        ]
