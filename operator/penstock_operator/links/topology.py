"""Finds, makes and removes the thing of a topology object on one broker.

Every verb is idempotent. Refusals are the client's errors.
"""

from typing import Any

from penstock import Connection
from penstock.client.errors import NotFoundError, NotSupportedError
from penstock.client.records import UserLimits, VhostLimits
from penstock_operator.api import (
    BindingSpec,
    ExchangeSpec,
    Limits,
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
EVERYTHING = ".*"
# Arguments that say that something is a stream, and of how many partitions.
OF_EVERY_STREAM = frozenset({"x-queue-type", "x-partitions"})


def find(broker: Connection, spec: TopologySpec) -> Fields | None:
    """Return the broker's fields, in the form of `desired.topology.wanted`; None when the thing does not exist."""
    match spec:
        case VHostSpec():
            return _find_vhost(broker, spec)
        case QueueSpec():
            return _find_queue(broker, spec)
        case StreamSpec():
            return _find_stream(broker, spec)
        case ExchangeSpec():
            return _find_exchange(broker, spec)
        case BindingSpec():
            return _find_binding(broker, spec)
        case UserSpec():
            return _find_user(broker, spec)
        case PolicySpec():
            return _find_policy(broker, spec)
        case PermissionSpec():
            held = broker.admin.list_permissions(user=spec.user, vhost=spec.vhost)
            return next(({"configure": each.configure, "write": each.write, "read": each.read} for each in held), None)
        case TopicPermissionSpec():
            return _find_topic_permission(broker, spec)
    raise AssertionError(spec)


def put(broker: Connection, spec: TopologySpec, administrator: str, password: str | None = None) -> None:
    """Make the thing, or change its mutable fields."""
    match spec:
        case VHostSpec():
            broker.admin.create_vhost(spec.name)
            open_vhost(broker, spec.name, administrator)
            broker.admin.set_vhost_limits(spec.name, **spec.limits.on_broker())
        case QueueSpec():
            broker.declare_queue(
                spec.name, durable=spec.durable, auto_delete=spec.auto_delete, arguments=spec.declared()
            )
        case StreamSpec():
            broker.declare_stream(spec.name, spec.partitions, arguments=spec.declared())
        case ExchangeSpec():
            broker.declare_exchange(
                spec.name, spec.type, spec.durable, spec.auto_delete, spec.internal, dict(spec.arguments)
            )
        case BindingSpec():
            bind = broker.bind_queue if spec.destination_type == "queue" else broker.bind_exchange
            bind(spec.destination, spec.source, spec.routing_key, dict(spec.arguments))
        case UserSpec():
            broker.admin.put_user(spec.name, password, spec.tags)
            _limit_user(broker, spec)
        case PolicySpec():
            definition = dict(spec.definition)
            broker.admin.set_policy(spec.name, spec.pattern, definition, spec.apply_to, spec.priority, spec.operator)
        case PermissionSpec():
            broker.admin.set_permission(spec.user or "", spec.vhost, spec.configure, spec.write, spec.read)
        case TopicPermissionSpec():
            broker.admin.set_topic_permission(spec.user or "", spec.exchange, spec.vhost, spec.write, spec.read)
        case _:
            raise AssertionError(spec)


def remove(broker: Connection, spec: TopologySpec) -> None:
    """Remove the thing; a missing one is fine."""
    try:
        _remove(broker, spec)
    except NotFoundError:
        return


def _remove(broker: Connection, spec: TopologySpec) -> None:
    match spec:
        case VHostSpec():
            broker.admin.delete_vhost(spec.name)
        case QueueSpec():
            broker.delete_queue(spec.name, if_unused=spec.delete_if_unused, if_empty=spec.delete_if_empty)
        case StreamSpec():
            broker.delete_stream(spec.name)
        case ExchangeSpec():
            broker.delete_exchange(spec.name)
        case BindingSpec():
            unbind = broker.unbind_queue if spec.destination_type == "queue" else broker.unbind_exchange
            unbind(spec.destination, spec.source, spec.routing_key, dict(spec.arguments))
        case UserSpec():
            broker.admin.delete_user(spec.name)
        case PolicySpec():
            broker.admin.delete_policy(spec.name, spec.operator)
        case PermissionSpec():
            broker.admin.delete_permission(spec.user or "", spec.vhost)
        case TopicPermissionSpec():
            broker.admin.delete_topic_permission(spec.user or "", spec.exchange, spec.vhost)
        case _:
            raise AssertionError(spec)


def open_vhost(broker: Connection, vhost: str, administrator: str) -> None:
    """Grant the administrator access to a vhost: its tag makes vhosts, but their content takes permissions."""
    broker.admin.set_permission(administrator, vhost, EVERYTHING, EVERYTHING, EVERYTHING)


def _find_vhost(broker: Connection, spec: VHostSpec) -> Fields | None:
    if spec.name not in {vhost.name for vhost in broker.admin.list_vhosts()}:
        return None
    return {"limits": _named(spec.limits, broker.admin.get_vhost_limits(spec.name))}


def _find_user(broker: Connection, spec: UserSpec) -> Fields | None:
    tags = {user.name: user.tags for user in broker.admin.list_users()}
    if spec.name not in tags:
        return None
    try:
        limits = broker.admin.get_user_limits(spec.name)
    except NotSupportedError:  # A broker from before users had limits.
        limits = UserLimits(connection_count=0)
    return {"tags": sorted(tags[spec.name]), "limits": _named(spec.limits, limits)}


def _limit_user(broker: Connection, spec: UserSpec) -> None:
    limits = spec.limits.on_broker()
    try:
        broker.admin.set_user_limits(spec.name, **limits)
    except NotSupportedError:
        if any(limit is not None for limit in limits.values()):
            raise


def _named(wanted: Limits, found: VhostLimits | UserLimits) -> Fields:
    """Return the found limits that a manifest can name."""
    return {name: getattr(found, name) for name in wanted.on_broker()}


def _find_queue(broker: Connection, spec: QueueSpec) -> Fields | None:
    try:
        queue = broker.admin.get_queue(spec.name)
    except NotFoundError:
        return None
    return {"durable": queue.durable, "autoDelete": queue.auto_delete, "arguments": dict(queue.arguments)}


def _find_stream(broker: Connection, spec: StreamSpec) -> Fields | None:
    try:
        stream = broker.admin.get_stream(spec.name)
    except NotFoundError:
        return None
    arguments = {key: value for key, value in stream.arguments.items() if key not in OF_EVERY_STREAM}
    return {"partitions": len(stream.partitions), "arguments": arguments}


def _find_topic_permission(broker: Connection, spec: TopicPermissionSpec) -> Fields | None:
    for held in broker.admin.list_topic_permissions(user=spec.user, vhost=spec.vhost):
        if held.exchange == spec.exchange:
            return {"write": held.write, "read": held.read}
    return None


def _find_exchange(broker: Connection, spec: ExchangeSpec) -> Fields | None:
    for exchange in broker.admin.list_exchanges():
        if exchange.name == spec.name:
            return {
                "type": exchange.type,
                "durable": exchange.durable,
                "autoDelete": exchange.auto_delete,
                "internal": exchange.internal,
                "arguments": dict(exchange.arguments),
            }
    return None


def _find_policy(broker: Connection, spec: PolicySpec) -> Fields | None:
    for policy in broker.admin.list_policies(spec.operator):
        if policy.name == spec.name:
            return {
                "pattern": policy.pattern,
                "applyTo": policy.apply_to,
                "priority": policy.priority,
                "definition": dict(policy.definition),
            }
    return None


def _find_binding(broker: Connection, spec: BindingSpec) -> Fields | None:
    for binding in broker.admin.list_bindings(source=spec.source, destination=spec.destination):
        same_kind = binding.destination_kind == spec.destination_type
        if same_kind and binding.routing_key == spec.routing_key and dict(binding.arguments) == dict(spec.arguments):
            return {}
    return None
