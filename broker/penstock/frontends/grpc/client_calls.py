"""Connections and consumers: requests to verbs."""

from penstock.frontends.grpc.pages import next_name, next_parts, number_after, number_of, page_size, parts_after
from penstock.services import ConsumerPlace, Principal, Services, consumer_place
from penstock.v1 import admin_pb2 as admin


async def list_connections(
    services: Services, principal: Principal, request: admin.ListConnectionsRequest
) -> admin.ListConnectionsResponse:
    limit = page_size(request.page_size)
    found = await services.clients.list_connections(principal, number_after(request.page_token), limit)
    response = admin.ListConnectionsResponse(next_page_token=next_name([str(each.number) for each in found], limit))
    for each in found:
        response.connections.add(
            id=each.number, peer=each.peer, users=each.users, vhosts=each.vhosts, consumer_count=each.consumer_count
        )
    return response


async def close_connection(
    services: Services, principal: Principal, request: admin.CloseConnectionRequest
) -> admin.CloseConnectionResponse:
    await services.clients.close_connection(principal, request.id)
    return admin.CloseConnectionResponse()


async def list_consumers(
    services: Services, principal: Principal, request: admin.ListConsumersRequest
) -> admin.ListConsumersResponse:
    vhost = request.vhost if request.HasField("vhost") else None
    limit = page_size(request.page_size)
    found = await services.clients.list_consumers(principal, vhost, _consumer_after(request.page_token), limit)
    place = [str(part) for part in consumer_place(found[-1])] if len(found) >= limit else None
    response = admin.ListConsumersResponse(next_page_token=next_parts(place))
    for each in found:
        response.consumers.add(
            vhost=each.vhost,
            queue=each.queue,
            consumer_tag=each.consumer_tag,
            user=each.user,
            connection=each.connection,
            prefetch=each.prefetch,
            auto_ack=each.auto_ack,
            exclusive=each.exclusive,
            active=each.active,
            priority=each.priority,
        )
    return response


def _consumer_after(token: str) -> ConsumerPlace | None:
    parts = parts_after(token, 4)
    if parts is None:
        return None
    number, vhost, queue, consumer_tag = parts
    return number_of(number, token), vhost, queue, consumer_tag
