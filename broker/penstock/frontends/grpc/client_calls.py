"""Connections and consumers: requests to verbs."""

from penstock.services import Principal, Services
from penstock.v1 import admin_pb2 as admin


async def list_connections(
    services: Services, principal: Principal, _: admin.ListConnectionsRequest
) -> admin.ListConnectionsResponse:
    response = admin.ListConnectionsResponse()
    for each in await services.clients.list_connections(principal):
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
    response = admin.ListConsumersResponse()
    for each in await services.clients.list_consumers(principal, vhost):
        response.consumers.add(
            vhost=each.vhost,
            queue=each.queue,
            consumer_tag=each.consumer_tag,
            user=each.user,
            connection=each.connection,
            prefetch=each.prefetch,
            auto_ack=each.auto_ack,
            exclusive=each.exclusive,
        )
    return response
