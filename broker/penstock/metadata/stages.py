"""Rules for stages: streams with a reserved name, whose rows wait until their batch is decided.

A stage belongs to one target, stored in its queue's arguments, so only a principal who may write to the target may use
it.
"""

from typing import Final, NamedTuple

from penstock.metadata import exchanges
from penstock.metadata.commands import DeclareQueue
from penstock.metadata.streams import NOBODY
from penstock.metadata.topology import VhostTopology
from penstock.model.errors import InvalidArgumentError, NotFoundError, Thing
from penstock.model.names import ExchangeName, QueueName, RoutingKey, check_name, exchange_name, routing_key
from penstock.model.records import STAGE_PREFIX, X_QUEUE_TYPE, Exchange, ExchangeKind, Queue, QueueKind

STAGE_EXCHANGE: Final = "stage-exchange"
STAGE_ROUTING_KEY: Final = "stage-routing-key"


class Target(NamedTuple):
    """The target of a stage; the routing key is for rows that have none of their own."""

    exchange: ExchangeName
    routing_key: RoutingKey


def queue_of(name: str) -> QueueName:
    """Return the queue of a stage. Raises for an invalid name."""
    if not name:
        raise InvalidArgumentError(Thing("stage", ""), "has no name", "name the stage", field="stage")
    return QueueName(check_name("stage", STAGE_PREFIX + name))


def target_of(state: VhostTopology, stream: str, exchange: str, key: str) -> Target:
    """Return the target of a request: a stream, else the exchange of that name; or an exchange."""
    if not stream:
        return Target(exchange_name(exchange), routing_key(key))
    if exchange or key:
        raise InvalidArgumentError(
            Thing("stream", stream, state.vhost),
            "is named beside an exchange or a routing key",
            "name either a stream or an exchange",
            field="stream",
        )
    found = state.queues.get(QueueName(stream))
    named = state.exchanges.get(ExchangeName(stream))
    if found is not None and found.is_stream and not (named is not None and _is_super(named)):
        return Target(ExchangeName(""), RoutingKey(stream))
    if named is None:
        raise NotFoundError(Thing("stream", stream, state.vhost))
    return Target(ExchangeName(stream), RoutingKey(""))


def declaration(name: str, target: Target) -> DeclareQueue:
    arguments = {
        X_QUEUE_TYPE: QueueKind.STREAM.value,
        STAGE_EXCHANGE: target.exchange,
        STAGE_ROUTING_KEY: target.routing_key,
    }
    return DeclareQueue(queue_of(name), NOBODY, arguments=arguments, may_be_reserved=True)


def check_target(state: VhostTopology, target: Target) -> None:
    """Check that clients can publish to the target; raise otherwise."""
    exchanges.check_publish(state, target.exchange)


def get(state: VhostTopology, name: str) -> Queue:
    """Return the queue of a stage. Raises when it does not exist."""
    queue = state.queues.get(queue_of(name))
    if queue is None:
        raise NotFoundError(state.thing("stage", name), "check the name")
    return queue


def all_of(state: VhostTopology) -> list[Queue]:
    """Return the queues of all stages, by name."""
    return [state.queues[name] for name in sorted(state.streams) if name.startswith(STAGE_PREFIX)]


def name_of(queue: Queue) -> str:
    return queue.name.removeprefix(STAGE_PREFIX)


def target_in(queue: Queue) -> Target:
    arguments = queue.arguments
    return Target(
        ExchangeName(str(arguments.get(STAGE_EXCHANGE, ""))), RoutingKey(str(arguments.get(STAGE_ROUTING_KEY, "")))
    )


def _is_super(exchange: Exchange) -> bool:
    return exchange.kind is ExchangeKind.SUPER_STREAM
