"""Policies and limits in the definitions JSON of RabbitMQ and LavinMQ.

Policies are in `policies`; an operator's policies and limits are in `parameters`. Pure translation, like
`definitions_json`.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from penstock.metadata.commands import SetPolicy
from penstock.metadata.effects import Entry, PersistLimits, PersistPolicies
from penstock.metadata.policies import Policy, check_policy, make_policy
from penstock.model.errors import InvalidArgumentError, Thing
from penstock.model.names import VhostName

JSON = dict[str, Any]

POLICY_KEYS: Final = frozenset({"name", "vhost", "pattern", "apply-to", "priority", "definition"})
OPERATOR_POLICY: Final = "operator_policy"
VHOST_LIMITS: Final = "vhost-limits"


def read_policy(vhost: VhostName, item: JSON, *, is_operator: bool) -> SetPolicy:
    """Read a policy. Raises refusals for settings that this version does not support."""
    name, pattern = item.get("name"), item.get("pattern")
    apply_to, priority, definition = item.get("apply-to", "all"), item.get("priority", 0), item.get("definition")
    texts = all(isinstance(text, str) for text in (name, pattern, apply_to))
    if not texts or isinstance(priority, bool) or not isinstance(priority, int) or not isinstance(definition, dict):
        raise InvalidArgumentError(
            Thing("policy", str(name), vhost),
            "has a field that is missing or of the wrong type",
            "send it as it was exported",
        )
    policy = make_policy(str(name), str(pattern), str(apply_to), priority, definition)
    check_policy(vhost, policy, is_operator=is_operator)
    return SetPolicy(policy, is_operator)


def write_policies(entries: Sequence[Entry], vhost: VhostName | None) -> dict[str, list[JSON]]:
    """Return the lists of policies and parameters. Their objects name the vhost unless it is None."""
    place: JSON = {} if vhost is None else {"vhost": vhost}
    lists: dict[str, list[JSON]] = {"policies": [], "parameters": []}
    for entry in entries:
        if not isinstance(entry, PersistPolicies):
            continue
        for policy in entry.policies:
            if entry.is_operator:
                parameter = {"name": policy.name, **place, "component": OPERATOR_POLICY, "value": _fields(policy)}
                lists["parameters"].append(parameter)
            else:
                lists["policies"].append({"name": policy.name, **place, **_fields(policy)})
    lists["parameters"] += write_limits(entries, vhost)
    return lists


def write_limits(entries: Iterable[Entry], vhost: VhostName | None) -> list[JSON]:
    """Return limits as a parameter, as RabbitMQ has them."""
    place: JSON = {} if vhost is None else {"vhost": vhost}
    found = [entry.limits.written() for entry in entries if isinstance(entry, PersistLimits)]
    return [{"name": "limits", **place, "component": VHOST_LIMITS, "value": value} for value in found]


def _fields(policy: Policy) -> JSON:
    return {
        "pattern": policy.pattern,
        "apply-to": policy.apply_to.value,
        "priority": policy.priority,
        "definition": dict(policy.definition),
    }
