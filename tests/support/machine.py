"""A vhost's machine with a short interface, for tests.

It declares, binds and deletes by plain names and records the effects.
"""

from penstock.metadata import VhostTopology, decide
from penstock.metadata.commands import (
    Bind,
    Command,
    ConnectionClosed,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    QueueUnused,
    Unbind,
)
from penstock.metadata.effects import Change, Decision, Entry
from penstock.model.arguments import Arguments
from penstock.model.names import ConnectionId, ExchangeName, QueueId, QueueName, RoutingKey, VhostName
from penstock.model.records import Binding, DestinationKind, Exchange, Queue

RANDOM = "0123456789abcdefghijkl"


class Machine:
    """Every method decides one command, appends its effects to `entries` and `changes`, and returns the decision.

    The invariants are checked after each, unless a test is too large for that.
    """

    def __init__(self, *, is_checked: bool = True) -> None:
        self._is_checked = is_checked
        self.state = VhostTopology(VhostName("/"))
        self.entries: list[Entry] = []
        self.changes: list[Change] = []

    def decide(self, command: Command) -> Decision:
        decision = decide(self.state, command)
        self.entries += decision.entries
        self.changes += decision.changes
        if self._is_checked:
            self.state.check_invariants()
        return decision

    def queue(self, name: str, connection: int = 1, arguments: Arguments | None = None, **flags: bool) -> Decision:
        return self.decide(
            DeclareQueue(QueueName(name), ConnectionId(connection), arguments=arguments or {}, random=RANDOM, **flags)
        )

    def delete_queue(self, name: str, connection: int = 1, **conditions: int) -> Decision:
        return self.decide(DeleteQueue(QueueName(name), ConnectionId(connection), **conditions))  # type: ignore[arg-type]

    def exchange(self, name: str, kind: str = "direct", arguments: Arguments | None = None, **flags: bool) -> Decision:
        return self.decide(DeclareExchange(ExchangeName(name), kind, arguments=arguments or {}, **flags))

    def delete_exchange(self, name: str, *, if_unused: bool = False) -> Decision:
        return self.decide(DeleteExchange(ExchangeName(name), if_unused))

    def bind(
        self, source: str, destination: str, key: str = "", arguments: Arguments | None = None, connection: int = 1
    ) -> Decision:
        return self.decide(Bind(self.binding(source, destination, key, arguments), ConnectionId(connection)))

    def unbind(
        self, source: str, destination: str, key: str = "", arguments: Arguments | None = None, connection: int = 1
    ) -> Decision:
        return self.decide(Unbind(self.binding(source, destination, key, arguments), ConnectionId(connection)))

    def closed(self, connection: int) -> Decision:
        return self.decide(ConnectionClosed(ConnectionId(connection)))

    def unused(self, name: str, consumer_count: int = 0) -> Decision:
        queue = self.state.queues.get(QueueName(name))
        queue_id = queue.id if queue is not None else QueueId(0)
        return self.decide(QueueUnused(QueueName(name), queue_id, consumer_count))

    def binding(self, source: str, destination: str, key: str = "", arguments: Arguments | None = None) -> Binding:
        """Return a binding, to an exchange when one has that name and no queue has, or with the prefix `exchange:`."""
        name = destination.removeprefix("exchange:")
        is_exchange = name != destination or (
            QueueName(name) not in self.state.queues and ExchangeName(name) in self.state.exchanges
        )
        kind = DestinationKind.EXCHANGE if is_exchange else DestinationKind.QUEUE
        return Binding(ExchangeName(source), kind, QueueName(name), RoutingKey(key), arguments or {})

    def queue_named(self, name: str) -> Queue:
        return self.state.queues[QueueName(name)]

    def exchange_named(self, name: str) -> Exchange:
        return self.state.exchanges[ExchangeName(name)]

    def has_exchange(self, name: str) -> bool:
        return ExchangeName(name) in self.state.exchanges

    def has_queue(self, name: str) -> bool:
        return QueueName(name) in self.state.queues
