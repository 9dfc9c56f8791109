"""The one subscriber to events of verbs.

It makes the open streams that a change concerns ask again, and applies limits.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from penstock.model.names import VhostName
from penstock.native import OpenConsumer
from penstock.services.events import Event, LimitsChanged, PermissionsChanged, TokenChanged, TopologyChanged
from penstock.services.ports import LimitsOfUsers
from penstock.services.quotas import QuotaListener, Quotas
from penstock.vhost.vhost import Vhost


class Listener(QuotaListener, Protocol):
    """The part of a listener that acts on its open streams when rights change. None stands for any name."""

    def forget(self, vhost: str | None) -> None:
        """Make publishers in a virtual host ask again which exchanges they may write."""
        ...

    def recheck(self, user: str | None, vhost: str | None) -> None:
        """Make the open streams of a user in a virtual host ask again whether they may go on.

        Publishers among them ask for their exchanges, too.
        """
        ...

    def recheck_connection(self, connection: int) -> None:
        """Make the open streams of one connection ask again whether they may go on."""
        ...

    def consumers(self) -> Sequence[OpenConsumer]:
        """Return the open consumers."""
        ...

    def close_connection(self, connection: int, /) -> bool:
        """Close a connection at once; return whether it is one of this listener's."""
        ...


class Listeners:
    """The listeners that serve now. Add one before it serves, so that it knows the limits."""

    def __init__(self, vhosts: Callable[[], Mapping[VhostName, Vhost]], user_limits: LimitsOfUsers) -> None:
        self._vhosts = vhosts
        self._user_limits = user_limits
        self._quotas: dict[Listener, Quotas] = {}

    def add(self, listener: Listener) -> None:
        quotas = self._quotas[listener] = Quotas(listener, self._vhosts, self._user_limits)
        quotas.apply()

    def remove(self, listener: Listener) -> None:
        self._quotas.pop(listener, None)

    def consumers(self) -> list[OpenConsumer]:
        """Return the open consumers of all listeners."""
        return [consumer for listener in self._quotas for consumer in listener.consumers()]

    def close_connection(self, connection: int) -> bool:
        """Close a connection at once; return whether a listener has it."""
        return any(listener.close_connection(connection) for listener in self._quotas)

    def take(self, events: frozenset[Event]) -> None:
        """Pass on what one verb changed, to every listener."""
        for listener, quotas in self._quotas.items():
            for event in events:
                match event:
                    case LimitsChanged(user=user, vhost=vhost):
                        quotas.apply(user=user, vhost=vhost)
                    case PermissionsChanged(user=user, vhost=vhost):
                        listener.recheck(user, vhost)
                    case TopologyChanged(vhost=vhost):
                        listener.forget(vhost)
                    case TokenChanged(connection=connection):
                        listener.recheck_connection(connection)
