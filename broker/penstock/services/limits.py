"""Limits of virtual hosts and of users.

Administrators change them; other users see their own, and those of the virtual hosts that they have access to.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.identity.users import check_user_name
from penstock.model.errors import Thing
from penstock.model.limits import Holder, Limits, check_limits, limits_by_field, thing_of
from penstock.model.names import vhost_name
from penstock.services.connections import Connections
from penstock.services.events import Events, LimitsChanged
from penstock.services.ports import LimitsOfUsers
from penstock.services.principal import Principal
from penstock.services.verbs import changing, reading
from penstock.vhost.all_vhosts import AllVhosts


@dataclass(frozen=True, slots=True)
class VhostLimitsStatus:
    """The limits of a virtual host, and how much of them is used."""

    limits: Limits
    queue_count: int
    connection_count: int


@dataclass(frozen=True, slots=True)
class UserLimitsStatus:
    limits: Limits
    connection_count: int


class LimitVerbs:
    def __init__(self, vhosts: AllVhosts, user_limits: LimitsOfUsers, connections: Connections, events: Events) -> None:
        self._vhosts = vhosts
        self._user_limits = user_limits
        self._connections = connections
        self._events = events

    @reading
    async def get_vhost_limits(self, principal: Principal, vhost: str) -> VhostLimitsStatus:
        found = self._vhosts.get(vhost_name(vhost))
        rights = principal.in_vhost(found.name)
        if not rights.is_administrator:
            rights.require_entry(Thing("vhost", found.name))
        return VhostLimitsStatus(found.limits, found.queue_count, self._connections.count(found.name))

    @changing("SetVhostLimits", "vhost", "limits")
    async def set_vhost_limits(self, principal: Principal, vhost: str, limits: Mapping[str, int]) -> None:
        """Set the limits by their names; one that is not named is no limit."""
        found = self._vhosts.get(vhost_name(vhost))
        wanted = limits_by_field(Holder.VHOST, found.name, limits)
        await found.set_limits(principal.in_vhost(found.name), wanted)
        self._events.emit(LimitsChanged(vhost=found.name))

    @reading
    async def get_user_limits(self, principal: Principal, name: str) -> UserLimitsStatus:
        """Return the limits of a user, who need not be known to this broker. An empty name is the principal's own."""
        user = name or principal.name
        if user != principal.name:
            principal.require_administrator(thing_of(Holder.USER, user))
        return UserLimitsStatus(self._user_limits.find(user), self._connections.count_of_user(user))

    @changing("SetUserLimits", "name", "limits")
    async def set_user_limits(self, principal: Principal, name: str, limits: Mapping[str, int]) -> None:
        principal.require_administrator(thing_of(Holder.USER, name))
        check_user_name(name)
        wanted = limits_by_field(Holder.USER, name, limits)
        check_limits(Holder.USER, name, wanted)
        await self._user_limits.set(name, wanted)
        self._events.emit(LimitsChanged(user=name))
