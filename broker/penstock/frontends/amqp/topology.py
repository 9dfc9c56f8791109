"""Exchanges, queues and bindings: from what a method asks for to verbs, and what the client hears of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from penstock.frontends.amqp.errors import UnknownTypeError
from penstock.frontends.native import vhost_of
from penstock.model.arguments import Arguments
from penstock.model.errors import AccessRefusedError, InvalidArgumentError, NotFoundError, Thing
from penstock.model.field_table import FieldTableError, decode_table
from penstock.model.names import exchange_name, existing_queue_name, queue_name, routing_key
from penstock.model.records import Binding, DestinationKind, ExchangeKind
from penstock.native import (
    BindingChange,
    ExchangeDeclare,
    ExchangeDelete,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    TopologyRequest,
)
from penstock.services import DeclareExchange, DeclareQueue, Principal, Services


class Outcome(NamedTuple):
    """The fields of the answer: the name of a queue, and the numbers of its messages and consumers."""

    name: str = ""
    message_count: int = 0
    consumer_count: int = 0


async def change(services: Services, principal: Principal, question: TopologyRequest) -> Outcome:
    topology, vhost = services.topology, vhost_of(question.vhost)
    match question:
        case ExchangeDeclare():
            await topology.declare_exchange(principal, vhost, _exchange(question))
            return Outcome()
        case ExchangeDelete(name=name, if_unused=if_unused):
            with _gone_already():
                await topology.delete_exchange(principal, vhost, name, if_unused=if_unused)
            return Outcome()
        case QueueDeclare():
            status = await topology.declare_queue(principal, vhost, _queue(principal, question))
            return Outcome(status.queue.name, status.ready_count, status.consumer_count)
        case QueueDelete(name=name, if_unused=if_unused, if_empty=if_empty):
            count = 0
            with _gone_already():
                count = await topology.delete_queue(principal, vhost, name, if_unused=if_unused, if_empty=if_empty)
            return Outcome(message_count=count)
        case QueuePurge(name=name):
            return Outcome(message_count=await topology.purge_queue(principal, vhost, name))
        case BindingChange(unbind=True):
            with _gone_already():
                await topology.unbind(principal, vhost, _binding(question))
            return Outcome()
        case BindingChange():
            await topology.bind(principal, vhost, _binding(question))
            return Outcome()


@contextmanager
def _gone_already() -> Iterator[None]:
    """Take what is not there for deleted: a deletion asserts that, as RabbitMQ's does."""
    try:
        yield
    except NotFoundError as error:
        if error.thing.kind not in ("queue", "exchange", "binding"):
            raise


def _exchange(question: ExchangeDeclare) -> DeclareExchange:
    # Before rights and names, as in RabbitMQ.
    if not question.passive and question.kind not in tuple(ExchangeKind):
        raise UnknownTypeError(Thing("exchange", question.name), question.kind)
    if not question.name:
        # Also passively, as in RabbitMQ; over gRPC its declaration may be looked up.
        raise AccessRefusedError(Thing("exchange", ""), "is the default exchange", "declare one with a name")
    return DeclareExchange(
        exchange_name(question.name),
        question.kind,
        durable=question.durable,
        auto_delete=question.auto_delete,
        internal=question.internal,
        arguments=_arguments(Thing("exchange", question.name), question.arguments),
        passive=question.passive,
    )


def _queue(principal: Principal, question: QueueDeclare) -> DeclareQueue:
    return DeclareQueue(
        queue_name(question.name),
        principal.connection_id,
        durable=question.durable,
        exclusive=question.exclusive,
        auto_delete=question.auto_delete,
        arguments=_arguments(Thing("queue", question.name), question.arguments),
        passive=question.passive,
    )


def _binding(question: BindingChange) -> Binding:
    kind = DestinationKind.EXCHANGE if question.to_exchange else DestinationKind.QUEUE
    name = exchange_name if question.to_exchange else existing_queue_name
    arguments = _arguments(Thing("binding", question.routing_key), question.arguments)
    source = exchange_name(question.source)
    return Binding(source, kind, name(question.destination), routing_key(question.routing_key), arguments)


def _arguments(thing: Thing, table: bytes) -> Arguments:
    """Return the arguments. The listener takes deeper tables than declarations have."""
    try:
        return decode_table(table)
    except FieldTableError as error:
        raise InvalidArgumentError(
            thing, f"has arguments that cannot be read ({error})", "make them flatter"
        ) from error
