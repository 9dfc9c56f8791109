"""The desired state of a topology object as plain fields, comparable with the broker's, and its name there.

This module neither reads nor changes the broker.
"""

from typing import Any, Final

from penstock_operator.api import (
    BindingSpec,
    ExchangeSpec,
    GrantSpec,
    PermissionSpec,
    PolicySpec,
    QueueSpec,
    StreamSpec,
    TopicPermissionSpec,
    TopologySpec,
    UserSpec,
    VHostSpec,
)

Fields = dict[str, Any]
# The broker can change these; for the others drift is only reported.
REPAIRABLE: Final = frozenset({"User", "Permission", "TopicPermission", "VHost", "Policy"})
# Kinds that describe what another kind describes too: of two with one name the older counts.
SAME_THING: Final = {"Stream": "Queue"}


def identity(spec: TopologySpec) -> tuple[str, ...]:
    """Return the identity on a broker: two manifests with the same one are in conflict."""
    match spec:
        case VHostSpec() | UserSpec():
            return (spec.name,)
        case BindingSpec():
            arguments = repr(sorted(spec.arguments.items()))
            return (spec.vhost, spec.source, spec.destination_type, spec.destination, spec.routing_key, arguments)
        case PermissionSpec():
            return (spec.vhost, _user(spec))
        case TopicPermissionSpec():
            return (spec.vhost, _user(spec), spec.exchange)
        case QueueSpec() | StreamSpec() | ExchangeSpec():
            return (spec.vhost, spec.name)
        case PolicySpec():
            return (spec.vhost, spec.name, str(spec.operator))
    raise AssertionError(spec)


def broker_name(spec: TopologySpec) -> str:
    """Return the name on the broker, for users."""
    match spec:
        case BindingSpec():
            return f"{spec.source} -> {spec.destination}"
        case GrantSpec():
            return spec.user or ""
        case VHostSpec() | UserSpec() | QueueSpec() | StreamSpec() | ExchangeSpec() | PolicySpec():
            return spec.name
    raise AssertionError(spec)


def wanted(spec: TopologySpec) -> Fields:
    """Return the fields that the broker must have."""
    match spec:
        case VHostSpec():
            return {"limits": spec.limits.on_broker()}
        case QueueSpec():
            return {"durable": spec.durable, "autoDelete": spec.auto_delete, "arguments": spec.declared()}
        case StreamSpec():
            return {"partitions": spec.partitions, "arguments": spec.declared()}
        case ExchangeSpec():
            return {
                "type": spec.type,
                "durable": spec.durable,
                "autoDelete": spec.auto_delete,
                "internal": spec.internal,
                "arguments": dict(spec.arguments),
            }
        case UserSpec():
            return {"tags": sorted(spec.tags), "limits": spec.limits.on_broker()}
        case PolicySpec():
            return {
                "pattern": spec.pattern,
                "applyTo": spec.apply_to,
                "priority": spec.priority,
                "definition": dict(spec.definition),
            }
        case PermissionSpec():
            return {"configure": spec.configure, "write": spec.write, "read": spec.read}
        case TopicPermissionSpec():
            return {"write": spec.write, "read": spec.read}
    return {}


def _user(spec: GrantSpec) -> str:
    return spec.user or f"userRef:{spec.user_ref.name if spec.user_ref else ''}"


def drift(spec: TopologySpec, found: Fields) -> list[str]:
    """Return the names of the fields that differ."""
    return [name for name, value in wanted(spec).items() if found.get(name) != value]


def described(names: list[str], spec: TopologySpec, found: Fields) -> str:
    """Return the end of a sentence with the desired and the actual values."""
    wants = wanted(spec)
    return "; ".join(f"{name} is {found.get(name)!r} there and {wants[name]!r} here" for name in names)
