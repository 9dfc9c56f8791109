"""Policies of a virtual host.

Setting one needs the tag policymaker or administrator, an operator's the tag administrator. A policy decides nothing
that an open stream was admitted by, so none emits an event.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.metadata.policies import Policy, make_policy
from penstock.model.names import vhost_name
from penstock.services.principal import Principal
from penstock.services.verbs import changing, reading
from penstock.vhost.all_vhosts import AllVhosts


@dataclass(frozen=True, slots=True)
class WantedPolicy:
    """A policy as a client sends it, unchecked."""

    name: str
    pattern: str
    apply_to: str = "all"
    priority: int = 0
    definition: Mapping[str, object] = field(default_factory=dict)


class PolicyVerbs:
    def __init__(self, vhosts: AllVhosts) -> None:
        self._vhosts = vhosts

    @reading
    async def list_policies(self, principal: Principal, vhost: str, *, operator: bool = False) -> list[Policy]:
        """Return them in the order in which they were set first."""
        found = self._vhosts.get(vhost_name(vhost))
        return await found.list_policies(principal.in_vhost(found.name), is_operator=operator)

    @changing(
        "SetPolicy",
        *("vhost", "policy.name", "policy.pattern", "policy.apply_to", "policy.priority", "policy.definition"),
        "operator",
    )
    async def set_policy(
        self, principal: Principal, vhost: str, policy: WantedPolicy, *, operator: bool = False
    ) -> None:
        found = self._vhosts.get(vhost_name(vhost))
        made = make_policy(policy.name, policy.pattern, policy.apply_to, policy.priority, policy.definition)
        await found.set_policy(principal.in_vhost(found.name), made, is_operator=operator)

    @changing("DeletePolicy", "vhost", "name", "operator")
    async def delete_policy(self, principal: Principal, vhost: str, name: str, *, operator: bool = False) -> None:
        found = self._vhosts.get(vhost_name(vhost))
        await found.delete_policy(principal.in_vhost(found.name), name, is_operator=operator)
