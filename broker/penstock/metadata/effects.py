"""Effects of a command: entries for the definitions file, changes for the engine, and the answer.

Entries are written and synced before the changes are made, and the changes are made before the answer is sent. Both
lists are in the order in which they must happen.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from penstock.metadata.policies import Policy
from penstock.model.limits import Limits
from penstock.model.names import ExchangeName, QueueId, QueueName
from penstock.model.records import Binding, Exchange, Queue, QueueKind, Route

# ---------------------------------------------------------------- for the definitions file


@dataclass(frozen=True, slots=True)
class PersistExchange:
    exchange: Exchange


@dataclass(frozen=True, slots=True)
class PersistExchangeDeleted:
    """An exchange was deleted, with its bindings in both directions, which are not written."""

    name: ExchangeName


@dataclass(frozen=True, slots=True)
class PersistQueue:
    """A queue was declared; its id is the frame's argument `x-penstock-id`."""

    queue: Queue


@dataclass(frozen=True, slots=True)
class PersistQueueDeleted:
    """A queue was deleted, with its bindings, which are not written."""

    name: QueueName


@dataclass(frozen=True, slots=True)
class PersistBound:
    binding: Binding


@dataclass(frozen=True, slots=True)
class PersistUnbound:
    binding: Binding


@dataclass(frozen=True, slots=True)
class PersistPolicies:
    """All policies, for a file of their own: they are few and written whole."""

    policies: tuple[Policy, ...]
    is_operator: bool = False


@dataclass(frozen=True, slots=True)
class PersistLimits:
    limits: Limits


@dataclass(frozen=True, slots=True)
class PersistDefaultQueueType:
    kind: QueueKind


SettingsEntry: TypeAlias = PersistPolicies | PersistLimits | PersistDefaultQueueType
"""Entries that have files of their own."""

Entry: TypeAlias = (
    PersistExchange
    | PersistExchangeDeleted
    | PersistQueue
    | PersistQueueDeleted
    | PersistBound
    | PersistUnbound
    | SettingsEntry
)

# ---------------------------------------------------------------- for the engine


@dataclass(frozen=True, slots=True)
class PutExchange:
    exchange: Exchange


@dataclass(frozen=True, slots=True)
class DropExchange:
    """Drop an exchange, after the removal of all its routes."""

    name: ExchangeName


@dataclass(frozen=True, slots=True)
class PutQueue:
    queue: Queue


@dataclass(frozen=True, slots=True)
class DropQueue:
    """Drop a queue, after the removal of all its routes."""

    id: QueueId
    name: QueueName


@dataclass(frozen=True, slots=True)
class UseQueue:
    """Note that a queue that expires was declared again."""

    id: QueueId


@dataclass(frozen=True, slots=True)
class EmptyQueue:
    """Drop the ready messages of a queue."""

    id: QueueId


@dataclass(frozen=True, slots=True)
class AddRoute:
    route: Route


@dataclass(frozen=True, slots=True)
class RemoveRoute:
    route: Route


Change: TypeAlias = PutExchange | DropExchange | PutQueue | DropQueue | UseQueue | EmptyQueue | AddRoute | RemoveRoute

# ---------------------------------------------------------------- for the client


@dataclass(frozen=True, slots=True)
class QueueDeclared:
    queue: Queue
    is_new: bool


@dataclass(frozen=True, slots=True)
class ExchangeDeclared:
    exchange: Exchange
    is_new: bool


@dataclass(frozen=True, slots=True)
class StreamDeclared:
    """Answer: `partitions` are the names of the stream's queues, in order; `is_new` when any part of it is."""

    partitions: tuple[QueueName, ...]
    is_new: bool


@dataclass(frozen=True, slots=True)
class Done:
    """Answer: how many things the command itself made or removed, 0 when nothing changed."""

    count: int = 1


Answer: TypeAlias = QueueDeclared | ExchangeDeclared | StreamDeclared | Done


@dataclass(slots=True)
class Decision:
    answer: Answer
    entries: list[Entry] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
