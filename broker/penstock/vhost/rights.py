"""Authorization of verbs: the user who acts, and the accesses that AMQP's verbs need.

The user and the user's patterns are given; this module only decides. `Rights` is a principal of the services reduced to
one virtual host: the permissions there, without credentials, address and audit, which this package must not know.
"""

from dataclasses import dataclass
from typing import Final

from penstock.model.errors import AccessRefusedError, Thing
from penstock.model.names import ConnectionId, UserName
from penstock.model.records import Access
from penstock.vhost.ports import Permissions

DEFAULT_EXCHANGE_ALIAS: Final = "amq.default"
"""The name of the default exchange in permission patterns."""


@dataclass(frozen=True, slots=True)
class Rights:
    """Rights of a principal. `permissions` are those in the vhost of the verb, or None when there are none.

    The administrator's tag grants access to vhosts, users and definitions, not to exchanges and queues.
    """

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
            raise AccessRefusedError.missing_permission(
                self.user,
                f"{access} permission",
                thing,
                f"ask an administrator for a {access} pattern that matches '{name}'",
            )

    def is_narrowed(self, exchange: str) -> bool:
        """Return whether routing keys of a topic exchange with write permission need a check."""
        return self.permissions is not None and self.permissions.narrows_keys(exchange)

    def may_key(self, access: Access, exchange: str, key: str) -> bool:
        """Return whether the key is allowed at a topic exchange to which the user has `access`."""
        return self.permissions is not None and self.permissions.allows_key(access, exchange, key)

    def require_key(self, access: Access, exchange: Thing, key: str) -> None:
        if not self.may_key(access, exchange.name, key):
            raise AccessRefusedError.missing_permission(
                self.user,
                f"{access} permission for routing key '{key}'",
                exchange,
                f"ask an administrator for a topic permission with a {access} pattern that matches the key",
            )

    def require_entry(self, vhost: Thing) -> None:
        if self.permissions is None:
            raise AccessRefusedError.access(self.user, vhost, "ask an administrator for permissions in this vhost")

    def require_policymaker(self, policy: Thing, *, is_operator: bool) -> None:
        """Require the tag for policies. Operator policies bound other policies, so they need an administrator."""
        if is_operator or not (self.is_policymaker or self.is_administrator):
            self.require_administrator(policy)
        if not self.is_administrator:
            self.require_entry(Thing("vhost", policy.vhost or ""))

    def require_administrator(self, thing: Thing) -> None:
        if not self.is_administrator:
            raise AccessRefusedError.access(self.user, thing, "use a user with the tag administrator")
