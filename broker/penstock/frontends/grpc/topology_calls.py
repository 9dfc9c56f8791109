"""Exchanges, queues and bindings: requests to verbs, and pages to tokens."""

from penstock.frontends.grpc.convert import arguments_of, binding_of, put_binding, put_exchange, put_queue
from penstock.frontends.grpc.pages import name_after, next_name, next_parts, page_size, parts_after
from penstock.frontends.native import vhost_of
from penstock.model.names import exchange_name, queue_name
from penstock.services import BindingPlace, DeclareExchange, DeclareQueue, Principal, Services, place_of
from penstock.v1 import admin_pb2 as admin


async def list_exchanges(
    services: Services, principal: Principal, request: admin.ListExchangesRequest
) -> admin.ListExchangesResponse:
    limit, after = page_size(request.page_size), name_after(request.page_token)
    page = await services.topology.list_exchanges(principal, vhost_of(request.vhost), after=after, limit=limit)
    response = admin.ListExchangesResponse(next_page_token=next_name([exchange.name for exchange in page], limit))
    for exchange in page:
        put_exchange(exchange, response.exchanges.add())
    return response


async def declare_exchange(
    services: Services, principal: Principal, request: admin.DeclareExchangeRequest
) -> admin.DeclareExchangeResponse:
    wanted = request.exchange
    command = DeclareExchange(
        exchange_name(wanted.name),
        wanted.type or "direct",
        durable=wanted.durable,
        auto_delete=wanted.auto_delete,
        internal=wanted.internal,
        arguments=arguments_of(wanted.arguments),
        passive=request.passive,
    )
    await services.topology.declare_exchange(principal, vhost_of(request.vhost), command)
    return admin.DeclareExchangeResponse()


async def delete_exchange(
    services: Services, principal: Principal, request: admin.DeleteExchangeRequest
) -> admin.DeleteExchangeResponse:
    place = vhost_of(request.vhost)
    await services.topology.delete_exchange(principal, place, request.name, if_unused=request.if_unused)
    return admin.DeleteExchangeResponse()


async def list_queues(
    services: Services, principal: Principal, request: admin.ListQueuesRequest
) -> admin.ListQueuesResponse:
    place = vhost_of(request.vhost)
    if request.HasField("name"):
        response = admin.ListQueuesResponse()
        put_queue(await services.topology.get_queue(principal, place, request.name), response.queues.add())
        return response
    limit, after = page_size(request.page_size), name_after(request.page_token)
    page = await services.topology.list_queues(principal, place, after=after, limit=limit)
    response = admin.ListQueuesResponse(next_page_token=next_name([status.queue.name for status in page], limit))
    for status in page:
        put_queue(status, response.queues.add())
    return response


async def declare_queue(
    services: Services, principal: Principal, request: admin.DeclareQueueRequest
) -> admin.DeclareQueueResponse:
    wanted = request.queue
    command = DeclareQueue(
        queue_name(wanted.name),
        principal.connection_id,
        durable=wanted.durable,
        exclusive=wanted.exclusive,
        auto_delete=wanted.auto_delete,
        arguments=arguments_of(wanted.arguments),
        passive=request.passive,
    )
    status = await services.topology.declare_queue(principal, vhost_of(request.vhost), command)
    return admin.DeclareQueueResponse(
        name=status.queue.name, ready_count=status.ready_count, consumer_count=status.consumer_count
    )


async def delete_queue(
    services: Services, principal: Principal, request: admin.DeleteQueueRequest
) -> admin.DeleteQueueResponse:
    dropped_count = await services.topology.delete_queue(
        principal, vhost_of(request.vhost), request.name, if_unused=request.if_unused, if_empty=request.if_empty
    )
    return admin.DeleteQueueResponse(dropped_count=dropped_count)


async def purge_queue(
    services: Services, principal: Principal, request: admin.PurgeQueueRequest
) -> admin.PurgeQueueResponse:
    dropped_count = await services.topology.purge_queue(principal, vhost_of(request.vhost), request.name)
    return admin.PurgeQueueResponse(dropped_count=dropped_count)


async def list_bindings(
    services: Services, principal: Principal, request: admin.ListBindingsRequest
) -> admin.ListBindingsResponse:
    source = request.source if request.HasField("source") else None
    destination = request.destination if request.HasField("destination") else None
    place = vhost_of(request.vhost)
    limit, parts = page_size(request.page_size), parts_after(request.page_token, len(BindingPlace._fields))
    page = await services.topology.list_bindings(
        principal,
        place,
        source=source,
        destination=destination,
        after=None if parts is None else BindingPlace(*parts),
        limit=limit,
    )
    response = admin.ListBindingsResponse(
        next_page_token=next_parts(place_of(page[-1]) if len(page) == limit else None)
    )
    for binding in page:
        put_binding(binding, response.bindings.add())
    return response


async def bind(services: Services, principal: Principal, request: admin.BindRequest) -> admin.BindResponse:
    await services.topology.bind(principal, vhost_of(request.vhost), binding_of(request.binding))
    return admin.BindResponse()


async def unbind(services: Services, principal: Principal, request: admin.UnbindRequest) -> admin.UnbindResponse:
    await services.topology.unbind(principal, vhost_of(request.vhost), binding_of(request.binding))
    return admin.UnbindResponse()
