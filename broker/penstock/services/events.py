"""Typed events for the changes that verbs make.

The events of one verb are delivered together when it ends, also when a later step of it fails, because the changes
before that step stay.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.model.names import ConnectionId


@dataclass(frozen=True, slots=True)
class TopologyChanged:
    """Exchanges of a virtual host, or of all, were added or deleted: publishers there may have learned otherwise."""

    vhost: str | None = None


@dataclass(frozen=True, slots=True)
class PermissionsChanged:
    """A user or its permissions changed, in one virtual host or in all.

    Without a name, those of any number of users.
    """

    user: str | None = None
    vhost: str | None = None


@dataclass(frozen=True, slots=True)
class LimitsChanged:
    """Limits of a user, or of a virtual host, changed; without a name, those of any number of them."""

    user: str | None = None
    vhost: str | None = None


@dataclass(frozen=True, slots=True)
class TokenChanged:
    """A token that opened streams on a connection ended, or a newer one took its place."""

    connection: ConnectionId


Event = TopologyChanged | PermissionsChanged | LimitsChanged | TokenChanged
Subscriber = Callable[[frozenset[Event]], None]


class Events:
    """Delivers events to subscribers, in the task of the verb that emits them."""

    def __init__(self) -> None:
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    def emit(self, *events: Event) -> None:
        """Deliver events of a change that is complete."""
        for subscriber in self._subscribers:
            subscriber(frozenset(events))

    @contextmanager
    def commit(self) -> Iterator[set[Event]]:
        """Yield a set to add events to; deliver what it holds once, at the end or after a failure."""
        changed: set[Event] = set()
        try:
            yield changed
        finally:
            if changed:
                self.emit(*changed)
