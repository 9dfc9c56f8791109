"""The topology of one vhost, with the indexes that keep every step short.

It has exchanges, queues, bindings by source and by destination, route counts, and exclusive queues by connection. It
keeps them consistent and has no rules about declarations; the rules are in the modules beside it.
"""

from collections.abc import Iterable, Iterator, MutableMapping
from itertools import pairwise
from typing import Final, TypeAlias, TypeVar

from penstock.metadata.binding_index import BindingIndex
from penstock.metadata.effects import (
    AddRoute,
    Change,
    PersistDefaultQueueType,
    PersistLimits,
    PersistPolicies,
    RemoveRoute,
    SettingsEntry,
)
from penstock.metadata.name_index import NameIndex
from penstock.metadata.overlay import inner_of
from penstock.metadata.policies import Policies
from penstock.model.arguments import Frozen
from penstock.model.errors import Thing
from penstock.model.limits import NO_LIMITS, Limits
from penstock.model.names import DEFAULT_EXCHANGE, ConnectionId, ExchangeName, QueueId, QueueName, VhostName
from penstock.model.records import Binding, DestinationKind, Exchange, ExchangeKind, Queue, QueueKind, route_of

PREDECLARED: Final = (
    Exchange(DEFAULT_EXCHANGE, ExchangeKind.DIRECT),
    Exchange(ExchangeName("amq.direct"), ExchangeKind.DIRECT),
    Exchange(ExchangeName("amq.fanout"), ExchangeKind.FANOUT),
    Exchange(ExchangeName("amq.headers"), ExchangeKind.HEADERS),
    Exchange(ExchangeName("amq.match"), ExchangeKind.HEADERS),
    Exchange(ExchangeName("amq.topic"), ExchangeKind.TOPIC),
)
PREDECLARED_NAMES: Final = frozenset(exchange.name for exchange in PREDECLARED)

Destination: TypeAlias = tuple[DestinationKind, QueueName | ExchangeName]
_Bindings: TypeAlias = MutableMapping[Frozen, Binding]
_Key = TypeVar("_Key")
_Inner = TypeVar("_Inner")
_Value = TypeVar("_Value")


class VhostTopology:
    """State of one vhost's machine.

    Invariants: the predeclared exchanges always exist; both ends of a binding exist; a binding is in both indexes or in
    neither, and no index holds an empty entry; a route's count is the number of bindings that share it; the ids of
    queues, and of their priorities, are distinct and below `next_queue_id`, which never goes down; a queue's shard is
    below `shard_count`, which only grows.
    """

    def __init__(self, vhost: VhostName, next_queue_id: QueueId = QueueId(1)) -> None:  # noqa: B008 - a plain number
        self.vhost = vhost
        self.next_queue_id = next_queue_id
        self.shard_count = 1
        self.put_count = 0
        """Queues that were declared or restored, whether or not they still exist."""
        self.exchanges: MutableMapping[ExchangeName, Exchange] = {exchange.name: exchange for exchange in PREDECLARED}
        self.queues: MutableMapping[QueueName, Queue] = {}
        self.streams: MutableMapping[QueueName, None] = {}
        self.exchange_names = NameIndex(self.exchanges)
        self.queue_names = NameIndex()
        self.ordered_bindings = BindingIndex()
        self.binding_count = 0
        self.policies: Policies = {}
        self.operator_policies: Policies = {}
        self.limits = NO_LIMITS
        self.default_queue_type = QueueKind.CLASSIC
        self._by_source: MutableMapping[ExchangeName, _Bindings] = {}
        self._by_destination: MutableMapping[Destination, _Bindings] = {}
        self._route_counts: MutableMapping[Frozen, int] = {}
        self._by_owner: MutableMapping[ConnectionId, MutableMapping[QueueName, None]] = {}

    # ------------------------------------------------------------ reading

    @property
    def has_policies(self) -> bool:
        return bool(self.policies or self.operator_policies)

    def thing(self, kind: str, name: str) -> Thing:
        return Thing(kind, name, self.vhost)

    def exchange(self, name: ExchangeName) -> Exchange | None:
        return self.exchanges.get(name)

    def has_queue(self, name: QueueName) -> bool:
        return name in self.queues

    def has_destination(self, binding: Binding) -> bool:
        if binding.destination_kind is DestinationKind.QUEUE:
            return binding.destination in self.queues
        return binding.destination in self.exchanges

    def bindings_from(self, source: ExchangeName) -> Iterable[Binding]:
        return self._by_source.get(source, {}).values()

    def bindings_to(self, kind: DestinationKind, name: QueueName | ExchangeName) -> Iterable[Binding]:
        return self._by_destination.get((kind, name), {}).values()

    def bindings(self) -> Iterator[Binding]:
        for bindings in self._by_source.values():
            yield from bindings.values()

    def binding(self, wanted: Binding) -> Binding | None:
        """Return the existing binding, with the arguments as they were first declared."""
        return self._by_source.get(wanted.source, {}).get(wanted.identity)

    def is_source(self, name: ExchangeName) -> bool:
        return name in self._by_source

    def is_binding_persistent(self, binding: Binding) -> bool:
        """Return whether a binding survives a restart: both its ends must."""
        if not self.exchanges[binding.source].is_persistent:
            return False
        if binding.destination_kind is DestinationKind.QUEUE:
            return self.queues[QueueName(binding.destination)].is_persistent
        return self.exchanges[ExchangeName(binding.destination)].is_persistent

    def queues_of(self, owner: ConnectionId) -> list[QueueName]:
        return list(self._by_owner.get(owner, ()))

    # ------------------------------------------------------------ changing

    def put_exchange(self, exchange: Exchange) -> None:
        self._put_exchange(exchange)
        self.exchange_names.add(exchange.name)

    def remove_exchange(self, name: ExchangeName) -> None:
        """Its bindings are gone already."""
        self._remove_exchange(name)
        self.exchange_names.remove(name)

    def put_queue(self, queue: Queue) -> None:
        self._put_queue(queue)
        self.queue_names.add(queue.name)
        if queue.is_stream:
            self.streams[queue.name] = None

    def remove_queue(self, name: QueueName) -> None:
        """Its bindings are gone already."""
        self._remove_queue(name)
        self.queue_names.remove(name)
        self.streams.pop(name, None)

    def put_binding(self, binding: Binding) -> list[Change]:
        """Return the route to add, or nothing when another binding stands for the same one."""
        self.ordered_bindings.add(binding)
        return self._put_binding(binding)

    def remove_binding(self, binding: Binding) -> list[Change]:
        """Return the route to remove, or nothing while another binding stands for the same one."""
        self.ordered_bindings.remove(binding)
        return self._remove_binding(binding)

    def put_policies(self, policies: Policies, *, is_operator: bool) -> None:
        """Replace all policies, or all of the operators' policies."""
        if is_operator:
            self.operator_policies = policies
        else:
            self.policies = policies

    def put_limits(self, limits: Limits) -> None:
        self.limits = limits

    def put_default_queue_type(self, kind: QueueKind) -> None:
        self.default_queue_type = kind

    def put_settings(self, entry: SettingsEntry) -> None:
        """Apply an entry that fits every topology."""
        match entry:
            case PersistPolicies(policies, is_operator):
                self.put_policies({policy.name: policy for policy in policies}, is_operator=is_operator)
            case PersistLimits(limits):
                self.put_limits(limits)
            case PersistDefaultQueueType(kind):
                self.put_default_queue_type(kind)

    def _put_exchange(self, exchange: Exchange) -> None:
        assert exchange.name not in self.exchanges
        self.exchanges[exchange.name] = exchange

    def _remove_exchange(self, name: ExchangeName) -> None:
        assert name not in PREDECLARED_NAMES
        assert name not in self._by_source
        del self.exchanges[name]

    def _put_queue(self, queue: Queue) -> None:
        assert queue.name not in self.queues
        self.queues[queue.name] = queue
        self.next_queue_id = max(self.next_queue_id, QueueId(queue.last_id + 1))
        self.put_count += 1
        if queue.owner is not None:
            inner_of(self._by_owner, queue.owner)[queue.name] = None

    def _remove_queue(self, name: QueueName) -> None:
        assert (DestinationKind.QUEUE, name) not in self._by_destination
        owner = self.queues.pop(name).owner
        if owner is not None:
            _remove(self._by_owner, owner, name)

    def _put_binding(self, binding: Binding) -> list[Change]:
        identity = binding.identity
        bindings = inner_of(self._by_source, binding.source)
        assert identity not in bindings
        bindings[identity] = binding
        inner_of(self._by_destination, (binding.destination_kind, binding.destination))[identity] = binding
        self.binding_count += 1
        route = route_of(binding, self.exchanges[binding.source].routing_kind)
        count = self._route_counts.get(route.identity, 0)
        self._route_counts[route.identity] = count + 1
        return [] if count else [AddRoute(route)]

    def _remove_binding(self, binding: Binding) -> list[Change]:
        identity = binding.identity
        destination = (binding.destination_kind, binding.destination)
        _remove(self._by_source, binding.source, identity)
        _remove(self._by_destination, destination, identity)
        self.binding_count -= 1
        route = route_of(binding, self.exchanges[binding.source].routing_kind)
        count = self._route_counts[route.identity] - 1
        if count:
            self._route_counts[route.identity] = count
            return []
        del self._route_counts[route.identity]
        return [RemoveRoute(route)]

    def check_invariants(self) -> None:
        assert self.exchanges.keys() >= PREDECLARED_NAMES
        assert set(self.exchange_names) == self.exchanges.keys()
        assert set(self.queue_names) == self.queues.keys()
        assert set(self.streams) == {queue.name for queue in self.queues.values() if queue.is_stream}
        ids = sorted((queue.id, queue.last_id) for queue in self.queues.values())
        assert all(before < first for (_, before), (first, _) in pairwise(ids))
        assert all(0 < first <= last < self.next_queue_id for first, last in ids)
        assert all(0 <= queue.shard < self.shard_count for queue in self.queues.values())
        assert {binding.identity for binding in self.ordered_bindings} == {each.identity for each in self.bindings()}
        by_source = [identity for bindings in self._by_source.values() for identity in bindings]
        by_destination = [identity for bindings in self._by_destination.values() for identity in bindings]
        assert set(by_source) == set(by_destination)
        assert len(by_source) == len(by_destination) == self.binding_count == sum(self._route_counts.values())
        assert all(self._by_source.values())
        assert all(self._by_destination.values())
        assert all(self._by_owner.values())
        assert all(binding.source in self.exchanges and self.has_destination(binding) for binding in self.bindings())
        owned = {(owner, name) for owner, names in self._by_owner.items() for name in names}
        assert owned == {(queue.owner, queue.name) for queue in self.queues.values() if queue.owner is not None}


def _remove(index: MutableMapping[_Key, MutableMapping[_Inner, _Value]], key: _Key, inner_key: _Inner) -> None:
    """Remove an entry of an inner mapping, and the inner mapping with its last entry."""
    entries = inner_of(index, key)
    del entries[inner_key]
    if not entries:
        del index[key]
