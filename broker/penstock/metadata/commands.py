"""Commands on a vhost's topology, as plain values.

They carry everything that they need from outside (counts, randomness, the connection). Names have already passed
`model.names`.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from penstock.metadata.policies import Policy
from penstock.model.arguments import Arguments
from penstock.model.limits import Limits
from penstock.model.names import ConnectionId, ExchangeName, QueueId, QueueName
from penstock.model.records import Binding


@dataclass(frozen=True, slots=True)
class DeclareExchange:
    """Declare an exchange.

    `kind` is text, because a client can ask for any. With `passive` it only checks, and needs only the name.
    """

    name: ExchangeName
    kind: str = "direct"
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Arguments = field(default_factory=dict)
    passive: bool = False


@dataclass(frozen=True, slots=True)
class DeleteExchange:
    name: ExchangeName
    if_unused: bool = False


@dataclass(frozen=True, slots=True)
class DeclareQueue:
    """Declare a queue; an empty name asks for one made of `random`, 22 URL-safe characters.

    `connection` owns an exclusive queue. `may_be_reserved` is for imports: a durable queue that a broker has named
    keeps that name. Without `takes_default_type`, one that names no type is a classic queue, whatever the default of
    its virtual host: so it was where it was exported.
    """

    name: QueueName
    connection: ConnectionId
    durable: bool = True
    exclusive: bool = False
    auto_delete: bool = False
    arguments: Arguments = field(default_factory=dict)
    passive: bool = False
    random: str = ""
    may_be_reserved: bool = False
    takes_default_type: bool = True


@dataclass(frozen=True, slots=True)
class DeleteQueue:
    """Delete a queue. The counts are the engine's at the decision; they matter with the conditions only."""

    name: QueueName
    connection: ConnectionId
    if_unused: bool = False
    if_empty: bool = False
    consumer_count: int = 0
    ready_count: int = 0


@dataclass(frozen=True, slots=True)
class PurgeQueue:
    name: QueueName
    connection: ConnectionId


@dataclass(frozen=True, slots=True)
class Bind:
    binding: Binding
    connection: ConnectionId


@dataclass(frozen=True, slots=True)
class Unbind:
    binding: Binding
    connection: ConnectionId


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """A connection has closed: its exclusive queues are deleted."""

    connection: ConnectionId


@dataclass(frozen=True, slots=True)
class QueueUnused:
    """The last consumer of an auto-delete queue has left, or a queue was unused for its time, as seen by the engine.

    A consumer that came since keeps the queue. A queue of the same name that was declared since has another number and
    is another queue. `is_expired` is whether its time is over at this moment.
    """

    name: QueueName
    id: QueueId
    consumer_count: int = 0
    is_expired: bool = False


@dataclass(frozen=True, slots=True)
class DeclareStream:
    """Declare a stream; `arguments` are those of its queues. With one partition it is just a queue of that name."""

    name: str
    partition_count: int = 1
    arguments: Arguments = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeleteStream:
    """Delete a stream with all its partitions."""

    name: str


@dataclass(frozen=True, slots=True)
class SetPolicy:
    policy: Policy
    is_operator: bool = False


@dataclass(frozen=True, slots=True)
class DeletePolicy:
    name: str
    is_operator: bool = False


@dataclass(frozen=True, slots=True)
class SetLimits:
    limits: Limits


@dataclass(frozen=True, slots=True)
class SetDefaultQueueType:
    """`kind` is text, because a client can ask for any."""

    kind: str


Command: TypeAlias = (
    DeclareExchange
    | DeleteExchange
    | DeclareQueue
    | DeleteQueue
    | PurgeQueue
    | Bind
    | Unbind
    | ConnectionClosed
    | QueueUnused
    | DeclareStream
    | DeleteStream
    | SetPolicy
    | DeletePolicy
    | SetLimits
    | SetDefaultQueueType
)
