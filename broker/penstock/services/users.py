"""Users and permissions. Changing them needs the tag administrator; others see themselves alone."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.identity import Permission, TopicPermission, User
from penstock.model.errors import RefusedError, Thing
from penstock.model.names import VhostName, exchange_name, vhost_name
from penstock.model.records import Access
from penstock.services.connections import Connections
from penstock.services.events import Events, LimitsChanged, PermissionsChanged
from penstock.services.ports import Accounts
from penstock.services.principal import Principal
from penstock.services.verbs import changing, reading
from penstock.vhost.all_vhosts import AllVhosts


@dataclass(frozen=True, slots=True)
class UserStatus:
    name: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HeldPermission:
    """The permission of a user in a virtual host, as patterns."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class HeldTopicPermission:
    """Which routing keys of a topic exchange a user may use, as patterns."""

    user: str
    vhost: str
    exchange: str
    write: str
    read: str


class UserVerbs:
    def __init__(self, accounts: Accounts, vhosts: AllVhosts, connections: Connections, events: Events) -> None:
        self._accounts = accounts
        self._vhosts = vhosts
        self._connections = connections
        self._events = events

    # ------------------------------------------------------------ users

    @reading
    async def list_users(self, principal: Principal) -> list[UserStatus]:
        return [UserStatus(user.name, tuple(tag.value for tag in user.tags)) for user in self._visible(principal)]

    @changing("PutUser", "name", "tags")
    async def put_user(
        self,
        principal: Principal,
        name: str,
        password: str | None,
        tags: Sequence[str] | None,
        *,
        force: bool = False,
        is_random: bool = False,
    ) -> bool:
        """Return whether the user is new. None keeps the password, or the tags.

        `is_random`: the password has 192 random bits or more.
        """
        principal.require_administrator(Thing("user", name))
        is_new = await self._accounts.put_user(name, password, tags, force=force, is_random=is_random)
        self._events.emit(PermissionsChanged(name))
        return is_new

    @changing("DeleteUser", "name")
    async def delete_user(self, principal: Principal, name: str, *, force: bool = False) -> None:
        """Delete a user with its permissions, its limits and its names of producers."""
        principal.require_administrator(Thing("user", name))
        with self._events.commit() as changed:
            changed.update((PermissionsChanged(name), LimitsChanged(user=name)))

            async def forget(user: str) -> None:
                # Open streams ask again before the names are deleted, so that none opens a name after that.
                changed.remove(PermissionsChanged(name))
                self._events.emit(PermissionsChanged(name))
                self._connections.user_deleted(user)  # before a user of that name can be made and log in
                await self._vhosts.delete_producers_of(user)

            try:
                await self._accounts.delete_user(name, force=force, forget=forget)
            except RefusedError:
                changed.clear()  # after a fault, steps before it may have been done
                raise

    # ------------------------------------------------------------ permissions

    @reading
    async def list_permissions(
        self, principal: Principal, *, user: str | None = None, vhost: str | None = None
    ) -> list[HeldPermission]:
        """Return the permissions; both names narrow the list."""
        wanted = _wanted(vhost)
        return [
            HeldPermission(each.name, name, *(held.pattern(access) for access in _ACCESSES))
            for each in self._visible(principal, user)
            for name, held in each.permissions.items()
            if wanted in (None, name)
        ]

    @changing("SetPermission", "permission.user", "permission.vhost", *(f"permission.{access}" for access in Access))
    async def set_permission(self, principal: Principal, permission: HeldPermission) -> None:
        vhost = vhost_name(permission.vhost)
        principal.require_administrator(Thing("permission of user", permission.user, vhost))
        self._vhosts.get(vhost)
        compiled = Permission.compile(permission.configure, permission.write, permission.read)
        await self._accounts.set_permission(permission.user, vhost, compiled)
        self._events.emit(PermissionsChanged(permission.user, vhost))

    @changing("DeletePermission", "user", "vhost")
    async def delete_permission(self, principal: Principal, user: str, vhost: str) -> None:
        place = vhost_name(vhost)
        principal.require_administrator(Thing("permission of user", user, place))
        await self._accounts.delete_permission(user, place)
        self._events.emit(PermissionsChanged(user, place))

    # ------------------------------------------------------------ topic permissions

    @reading
    async def list_topic_permissions(
        self, principal: Principal, *, user: str | None = None, vhost: str | None = None
    ) -> list[HeldTopicPermission]:
        """Return the topic permissions; both names narrow the list."""
        wanted = _wanted(vhost)
        return [
            HeldTopicPermission(each.name, name, exchange, topic.write, topic.read)
            for each in self._visible(principal, user)
            for name, topics in each.topics.items()
            if wanted in (None, name)
            for exchange, topic in topics.items()
        ]

    @changing(
        "SetTopicPermission",
        *("permission.user", "permission.vhost", "permission.exchange", "permission.write", "permission.read"),
    )
    async def set_topic_permission(self, principal: Principal, permission: HeldTopicPermission) -> None:
        """Set it. The exchange need not be there, nor be a topic exchange: it may become one."""
        user, vhost, exchange = permission.user, vhost_name(permission.vhost), exchange_name(permission.exchange)
        principal.require_administrator(Thing("topic permission of user", user, vhost))
        self._vhosts.get(vhost)
        compiled = TopicPermission.compile(user, vhost, permission.write, permission.read)
        await self._accounts.set_topic(user, vhost, exchange, compiled)
        self._events.emit(PermissionsChanged(user, vhost))

    @changing("DeleteTopicPermission", "user", "vhost", "exchange")
    async def delete_topic_permission(
        self, principal: Principal, user: str, vhost: str, exchange: str | None = None
    ) -> None:
        """Delete the topic permission for one exchange, or all of the virtual host."""
        place = vhost_name(vhost)
        principal.require_administrator(Thing("topic permission of user", user, place))
        await self._accounts.delete_topics(user, place, exchange)
        self._events.emit(PermissionsChanged(user, place))

    def _visible(self, principal: Principal, wanted: str | None = None) -> Iterable[User]:
        for user in self._accounts.users():
            if wanted in (None, user.name) and (principal.is_administrator or user.name == principal.name):
                yield user


_ACCESSES = (Access.CONFIGURE, Access.WRITE, Access.READ)


def _wanted(vhost: str | None) -> VhostName | None:
    return None if vhost is None else vhost_name(vhost)
