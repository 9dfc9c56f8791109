"""Who asks for a verb, and whether a verb is allowed: the table of AMQP verbs and the accesses that they need.

It decides from what it is given; who the user is and which patterns hold was settled before.
"""

from dataclasses import dataclass
from typing import Final

from penstock.model.errors import AccessRefusedError, Thing
from penstock.model.names import ConnectionId, UserName
from penstock.model.records import Access
from penstock.vhost.ports import Permissions

DEFAULT_EXCHANGE_ALIAS: Final = "amq.default"
"""The name by which permission patterns know the default exchange."""


@dataclass(frozen=True, slots=True)
class Actor:
    """`permissions` is what the user may do in the vhost at hand, or None when that is nothing at all. The
    administrator's tag opens vhosts, users and definitions, not exchanges and queues."""

    user: UserName
    is_administrator: bool
    permissions: Permissions | None
    connection: ConnectionId
    is_policymaker: bool = False
    is_monitoring: bool = False

    def sees_all(self) -> bool:
        """Return whether the user sees what other users own."""
        return self.is_administrator or self.is_monitoring

    def require(self, access: Access, thing: Thing) -> None:
        name = thing.name
        if thing.kind == "exchange" and not name:
            name = DEFAULT_EXCHANGE_ALIAS
        if self.permissions is None or not self.permissions.allows(access, name, thing.kind):
            raise AccessRefusedError(
                thing,
                f"is closed to user '{self.user}' for {access}",
                f"let an administrator set the user's {access} permission to a pattern that matches '{name}'",
            )

    def is_narrowed(self, exchange: str) -> bool:
        """Whether routing keys of a topic exchange that may be written have to be looked at."""
        return self.permissions is not None and self.permissions.narrows_keys(exchange)

    def may_key(self, access: Access, exchange: str, key: str) -> bool:
        """Of a topic exchange that is open for `access`."""
        return self.permissions is not None and self.permissions.allows_key(access, exchange, key)

    def require_key(self, access: Access, exchange: Thing, key: str) -> None:
        if not self.may_key(access, exchange.name, key):
            raise AccessRefusedError(
                exchange,
                f"is closed to user '{self.user}' for {access} with the routing key '{key}'",
                f"let an administrator set the user's topic permission to a {access} pattern that matches the key",
            )

    def require_entry(self, vhost: Thing) -> None:
        if self.permissions is None:
            raise AccessRefusedError(
                vhost, f"is closed to user '{self.user}'", "let an administrator give the user permissions in it"
            )

    def require_policymaker(self, policy: Thing, *, is_operator: bool) -> None:
        """An operator's policies bound what others may set, so they are the administrators'."""
        if is_operator or not (self.is_policymaker or self.is_administrator):
            self.require_administrator(policy)
        if not self.is_administrator:
            self.require_entry(Thing("vhost", policy.vhost or ""))

    def require_administrator(self, thing: Thing) -> None:
        if not self.is_administrator:
            raise AccessRefusedError(
                thing, f"may not be changed or shown by user '{self.user}'", "use a user with the tag administrator"
            )
