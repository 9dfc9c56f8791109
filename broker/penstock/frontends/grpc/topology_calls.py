"""Exchanges, queues and bindings: from the wire's requests to the verbs of a vhost. Who may do what the verbs check."""

from collections.abc import Sequence

from penstock.frontends.grpc.caller import Caller
from penstock.frontends.grpc.context import Context
from penstock.frontends.grpc.convert import (
    arguments_of,
    binding_of,
    existing_queue_name,
    put_binding,
    put_exchange,
    put_queue,
    vhost_of,
)
from penstock.kit.settings import PAGE_SIZE_MAX
from penstock.metadata.commands import DeclareExchange, DeclareQueue
from penstock.model.errors import InvalidArgumentError, Thing
from penstock.model.names import exchange_name, queue_name
from penstock.v1 import admin_pb2 as admin

_TOKEN_MARK = "after:"  # the default exchange's name is empty, and an empty token means the first page


async def list_exchanges(
    context: Context, caller: Caller, request: admin.ListExchangesRequest
) -> admin.ListExchangesResponse:
    name = vhost_of(request.vhost)
    limit = _page_size(request.page_size)
    vhost, actor = context.vhosts.get(name), caller.actor(name)
    page = await vhost.list_exchanges(actor, after=_after(request.page_token), limit=limit)
    response = admin.ListExchangesResponse(next_page_token=_next([exchange.name for exchange in page], limit))
    for exchange in page:
        put_exchange(exchange, response.exchanges.add())
    return response


async def declare_exchange(
    context: Context, caller: Caller, request: admin.DeclareExchangeRequest
) -> admin.DeclareExchangeResponse:
    name, wanted = vhost_of(request.vhost), request.exchange
    command = DeclareExchange(
        exchange_name(wanted.name),
        wanted.type or "direct",
        durable=wanted.durable,
        auto_delete=wanted.auto_delete,
        internal=wanted.internal,
        arguments=arguments_of(wanted.arguments),
        passive=request.passive,
    )
    declared = await context.vhosts.get(name).declare_exchange(caller.actor(name), command)
    if declared.is_new:
        context.forget()  # a stream may have learned that there is none
    return admin.DeclareExchangeResponse()


async def delete_exchange(
    context: Context, caller: Caller, request: admin.DeleteExchangeRequest
) -> admin.DeleteExchangeResponse:
    name = vhost_of(request.vhost)
    await context.vhosts.get(name).delete_exchange(
        caller.actor(name), exchange_name(request.name), if_unused=request.if_unused
    )
    context.forget()
    return admin.DeleteExchangeResponse()


async def list_queues(context: Context, caller: Caller, request: admin.ListQueuesRequest) -> admin.ListQueuesResponse:
    name = vhost_of(request.vhost)
    vhost, actor = context.vhosts.get(name), caller.actor(name)
    if request.HasField("name"):
        response = admin.ListQueuesResponse()
        put_queue(await vhost.queue_status(actor, existing_queue_name(request.name)), response.queues.add())
        return response
    limit = _page_size(request.page_size)
    page = await vhost.list_queues(actor, after=_after(request.page_token), limit=limit)
    response = admin.ListQueuesResponse(next_page_token=_next([status.queue.name for status in page], limit))
    for status in page:
        put_queue(status, response.queues.add())
    return response


async def declare_queue(
    context: Context, caller: Caller, request: admin.DeclareQueueRequest
) -> admin.DeclareQueueResponse:
    name, wanted = vhost_of(request.vhost), request.queue
    command = DeclareQueue(
        queue_name(wanted.name),
        caller.connection,
        durable=wanted.durable,
        exclusive=wanted.exclusive,
        auto_delete=wanted.auto_delete,
        arguments=arguments_of(wanted.arguments),
        passive=request.passive,
    )
    status = await context.vhosts.get(name).declare_queue(caller.actor(name), command)
    return admin.DeclareQueueResponse(
        name=status.queue.name, ready_count=status.ready_count, consumer_count=status.consumer_count
    )


async def delete_queue(
    context: Context, caller: Caller, request: admin.DeleteQueueRequest
) -> admin.DeleteQueueResponse:
    name = vhost_of(request.vhost)
    dropped_count = await context.vhosts.get(name).delete_queue(
        caller.actor(name),
        existing_queue_name(request.name),
        if_unused=request.if_unused,
        if_empty=request.if_empty,
    )
    return admin.DeleteQueueResponse(dropped_count=dropped_count)


async def purge_queue(context: Context, caller: Caller, request: admin.PurgeQueueRequest) -> admin.PurgeQueueResponse:
    name = vhost_of(request.vhost)
    dropped_count = await context.vhosts.get(name).purge_queue(caller.actor(name), existing_queue_name(request.name))
    return admin.PurgeQueueResponse(dropped_count=dropped_count)


async def list_bindings(
    context: Context, caller: Caller, request: admin.ListBindingsRequest
) -> admin.ListBindingsResponse:
    name = vhost_of(request.vhost)
    source = exchange_name(request.source) if request.HasField("source") else None
    destination = request.destination if request.HasField("destination") else None
    found = await context.vhosts.get(name).list_bindings(caller.actor(name), source=source, destination=destination)
    response = admin.ListBindingsResponse()
    for binding in found:
        put_binding(binding, response.bindings.add())
    return response


async def bind(context: Context, caller: Caller, request: admin.BindRequest) -> admin.BindResponse:
    name = vhost_of(request.vhost)
    await context.vhosts.get(name).bind(caller.actor(name), binding_of(request.binding))
    return admin.BindResponse()


async def unbind(context: Context, caller: Caller, request: admin.UnbindRequest) -> admin.UnbindResponse:
    name = vhost_of(request.vhost)
    await context.vhosts.get(name).unbind(caller.actor(name), binding_of(request.binding))
    return admin.UnbindResponse()


def _page_size(wanted: int) -> int:
    return min(wanted or PAGE_SIZE_MAX, PAGE_SIZE_MAX)


def _next(names: Sequence[str], limit: int) -> str:
    """A full page may have another one behind it, which may turn out to be empty."""
    return _TOKEN_MARK + names[-1] if len(names) == limit else ""


def _after(token: str) -> str | None:
    if not token:
        return None
    if not token.startswith(_TOKEN_MARK):
        raise InvalidArgumentError(
            Thing("page token", token[:64]),
            "is none that this broker gave",
            "begin with an empty one",
            field="page_token",
        )
    return token.removeprefix(_TOKEN_MARK)
