"""The desired state of a topology object as plain fields, comparable with the broker's, its name and its needs there.

This module neither reads nor changes the broker.
"""

from typing import Any, Final, NamedTuple

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
# Kinds that describe what another kind describes too: of two with one name the older counts.
SAME_THING: Final = {"Stream": "Queue"}


class Need(NamedTuple):
    """A thing that another one on the same broker needs."""

    kind: str
    vhost: str
    name: str


def identity(spec: TopologySpec) -> tuple[str, ...]:
    """Return the identity on a broker: two manifests with the same one are in conflict."""
    match spec:
        case VHostSpec() | UserSpec():
            return (spec.name,)
        case BindingSpec():
            arguments = repr(sorted(spec.arguments.items()))
            return (spec.vhost, spec.source, spec.destination_type, spec.destination, spec.routing_key, arguments)
        case PermissionSpec():
            return (spec.vhost, spec.user or "")
        case TopicPermissionSpec():
            return (spec.vhost, spec.user or "", spec.exchange)
        case QueueSpec() | StreamSpec() | ExchangeSpec():
            return (spec.vhost, spec.name)
        case PolicySpec():
            return (spec.vhost, spec.name, str(spec.operator))
    raise AssertionError(spec)


def same_kinds(kind: str) -> list[str]:
    """Return the kinds that may describe the same thing as one of this kind."""
    thing = SAME_THING.get(kind, kind)
    return [thing, *(other for other, same in SAME_THING.items() if same == thing)]


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
            shards = {} if spec.shards is None else {"shards": spec.shards}
            kind = {} if spec.default_queue_type is None else {"defaultQueueType": spec.default_queue_type}
            return {"limits": spec.limits.on_broker(), **shards, **kind}
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


def needs(spec: TopologySpec) -> tuple[Need, ...]:
    """Return the things without which the broker refuses this one."""
    match spec:
        case BindingSpec():
            vhost, kind = spec.vhost, spec.destination_type.title()
            source, destination = Need("Exchange", vhost, spec.source), Need(kind, vhost, spec.destination)
            return Need("VHost", "", vhost), source, destination
        case GrantSpec():
            return Need("VHost", "", spec.vhost), Need("User", "", spec.user or "")
        case QueueSpec() | StreamSpec() | ExchangeSpec() | PolicySpec():
            return (Need("VHost", "", spec.vhost),)
    return ()


def gives(spec: TopologySpec) -> Need | None:
    """Return the need that this meets."""
    match spec:
        case VHostSpec():
            return Need("VHost", "", spec.name)
        case UserSpec():
            return Need("User", "", spec.name)
        case QueueSpec() | StreamSpec():
            return Need("Queue", spec.vhost, spec.name)
        case ExchangeSpec():
            return Need("Exchange", spec.vhost, spec.name)
    return None


def drift(spec: TopologySpec, found: Fields) -> list[str]:
    """Return the paths of the fields that differ, as `arguments.x-max-length`."""
    return [".".join(path) for path in _differing(wanted(spec), found)]


def described(paths: list[str], spec: TopologySpec, found: Fields) -> str:
    """Return the end of a sentence with the desired and the actual values."""
    wants = wanted(spec)
    return "; ".join(f"{path} is {_value(found, path)!r} there and {_value(wants, path)!r} here" for path in paths)


def _differing(wants: Fields, found: Fields) -> list[tuple[str, ...]]:
    paths: list[tuple[str, ...]] = []
    for name, value in wants.items():
        other = found.get(name)
        if isinstance(value, dict) and isinstance(other, dict):
            keys = dict.fromkeys((*value, *other))
            paths += [(name, key) for key in keys if value.get(key) != other.get(key)]
        elif value != other:
            paths.append((name,))
    return paths


def _value(fields: Fields, path: str) -> Any:
    name, _, key = path.partition(".")
    value = fields.get(name)
    return value.get(key) if key and isinstance(value, dict) else value
