"""Translates between the messages of the contract and the broker's records, and checks their shape.

The services decide whether a value is allowed. An enum or an empty field that means a default is resolved only here.
"""

from collections.abc import Mapping

from penstock.model.arguments import Arguments, Decimal, Timestamp, Value
from penstock.model.errors import InvalidArgumentError, Thing
from penstock.model.names import (
    exchange_name,
    queue_name,
    routing_key,
)
from penstock.model.records import Binding, DestinationKind, Exchange
from penstock.services import QueueStatus
from penstock.v1 import admin_pb2, message_pb2

_DESTINATION_KINDS = {
    DestinationKind.QUEUE: admin_pb2.DESTINATION_KIND_QUEUE,
    DestinationKind.EXCHANGE: admin_pb2.DESTINATION_KIND_EXCHANGE,
}


def arguments_of(fields: Mapping[str, message_pb2.Value]) -> dict[str, Value]:
    return {key: value_of(fields[key]) for key in fields}


def value_of(value: message_pb2.Value) -> Value:
    """Recursion is bounded by the parser, which takes at most a hundred levels."""
    kind = value.WhichOneof("kind")
    if kind is None:
        return None
    if kind == "timestamp_value":
        return Timestamp(value.timestamp_value)
    if kind == "decimal_value":
        return Decimal(value.decimal_value.scale, value.decimal_value.unscaled)
    if kind == "table_value":
        return arguments_of(value.table_value.fields)
    if kind == "array_value":
        return [value_of(item) for item in value.array_value.items]
    scalar: bool | int | float | str | bytes = getattr(value, kind)
    return scalar


def put_arguments(arguments: Arguments, fields: Mapping[str, message_pb2.Value]) -> None:
    """Write arguments into a map field."""
    for key, value in arguments.items():
        put_value(value, fields[key])  # a message map makes an entry when it is looked up


def put_value(value: Value, into: message_pb2.Value) -> None:  # noqa: C901 - one branch a type
    if isinstance(value, bool):
        into.bool_value = value
    elif isinstance(value, int):
        into.int_value = value
    elif isinstance(value, float):
        into.double_value = value
    elif isinstance(value, str):
        into.string_value = value
    elif isinstance(value, bytes):
        into.bytes_value = value
    elif isinstance(value, Timestamp):
        into.timestamp_value = value.seconds
    elif isinstance(value, Decimal):
        into.decimal_value.scale, into.decimal_value.unscaled = value.scale, value.unscaled
    elif isinstance(value, dict):
        into.table_value.SetInParent()
        put_arguments(value, into.table_value.fields)
    elif isinstance(value, list):
        into.array_value.SetInParent()
        for item in value:
            put_value(item, into.array_value.items.add())


def binding_of(binding: admin_pb2.Binding) -> Binding:
    source, key, arguments = (
        exchange_name(binding.source),
        routing_key(binding.routing_key),
        arguments_of(binding.arguments),
    )
    kind = binding.destination_kind
    if kind == admin_pb2.DESTINATION_KIND_EXCHANGE:
        return Binding(source, DestinationKind.EXCHANGE, exchange_name(binding.destination), key, arguments)
    if kind not in (admin_pb2.DESTINATION_KIND_UNSPECIFIED, admin_pb2.DESTINATION_KIND_QUEUE):
        raise InvalidArgumentError(
            Thing("binding", binding.destination),
            f"has an unknown destination_kind {int(kind)}",
            "use DESTINATION_KIND_QUEUE or DESTINATION_KIND_EXCHANGE",
            field="destination_kind",
        )
    return Binding(source, DestinationKind.QUEUE, queue_name(binding.destination), key, arguments)


def put_binding(binding: Binding, into: admin_pb2.Binding) -> None:
    into.source, into.destination, into.routing_key = binding.source, binding.destination, binding.routing_key
    into.destination_kind = _DESTINATION_KINDS[binding.destination_kind]
    put_arguments(binding.arguments, into.arguments)


def put_exchange(exchange: Exchange, into: admin_pb2.Exchange) -> None:
    into.name, into.type = exchange.name, exchange.kind.value
    into.durable, into.auto_delete, into.internal = exchange.durable, exchange.auto_delete, exchange.internal
    put_arguments(exchange.arguments, into.arguments)


def put_queue(status: QueueStatus, into: admin_pb2.Queue) -> None:
    queue = status.queue
    into.name, into.durable, into.exclusive, into.auto_delete = (
        queue.name,
        queue.durable,
        queue.exclusive,
        queue.auto_delete,
    )
    counts = status.counts
    into.ready_count, into.unacked_count = counts.ready_count, counts.unacked_count
    into.ready_bytes, into.unacked_bytes = counts.ready_bytes, counts.unacked_bytes
    into.consumer_count = counts.consumer_count
    into.published_count, into.delivered_count = counts.published_count, counts.delivered_count
    into.settled_count, into.delayed_count = counts.settled_count, counts.delayed_count
    into.deduplicated_count = counts.deduplicated_count
    put_arguments(queue.arguments, into.arguments)
    put_arguments(status.effective_arguments, into.effective_arguments)
    into.policy, into.operator_policy = status.policy, status.operator_policy
