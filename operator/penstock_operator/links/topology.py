"""Makes, changes and removes the thing of a topology object on one broker.

Every verb is idempotent. Refusals are the client's errors.
"""

from penstock import Connection
from penstock.client.errors import NotFoundError, NotSupportedError
from penstock_operator.api import (
    BindingSpec,
    ExchangeSpec,
    PermissionSpec,
    PolicySpec,
    QueueSpec,
    StreamSpec,
    TopicPermissionSpec,
    TopologySpec,
    UserSpec,
    VHostSpec,
)
from penstock_operator.api.topology import X_QUEUE_TYPE

EVERYTHING = ".*"


def put(
    broker: Connection,
    spec: TopologySpec,
    administrator: str,
    password: str | None = None,
    *,
    is_random: bool = False,
) -> None:
    """Make the thing, or change its mutable fields. `is_random`: the password is one that the operator generated."""
    match spec:
        case VHostSpec():
            _put_vhost(broker, spec, administrator)
        case QueueSpec():
            # Always with a type: without one the queue would have the default type of its virtual host.
            arguments = {X_QUEUE_TYPE: spec.type, **spec.declared()}
            broker.declare_queue(spec.name, durable=spec.durable, auto_delete=spec.auto_delete, arguments=arguments)
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
            broker.admin.put_user(spec.name, password, spec.tags, random_password=is_random)
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


def _put_vhost(broker: Connection, spec: VHostSpec, administrator: str) -> None:
    shards = spec.shards or 1
    broker.admin.create_vhost(spec.name, shards, spec.default_queue_type)
    if shards > 1:  # an older broker does not know the call
        broker.admin.set_vhost_shards(spec.name, shards)
    open_vhost(broker, spec.name, administrator)
    broker.admin.set_vhost_limits(spec.name, **spec.limits.on_broker())


def _limit_user(broker: Connection, spec: UserSpec) -> None:
    limits = spec.limits.on_broker()
    try:
        broker.admin.set_user_limits(spec.name, **limits)
    except NotSupportedError:
        if any(limit is not None for limit in limits.values()):
            raise
