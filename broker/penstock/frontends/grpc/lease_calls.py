"""Leases: requests to verbs."""

from penstock.frontends.native import vhost_of
from penstock.services import Principal, Services
from penstock.v1 import messaging_pb2 as wire


async def reserve_lease(
    services: Services, principal: Principal, request: wire.ReserveLeaseRequest
) -> wire.ReserveLeaseResponse:
    place, limits = (vhost_of(request.vhost), request.queue), (request.messages_max, request.bytes_max)
    reserved = await services.leases.reserve_lease(principal, place, request.owner, request.lease, limits)
    lease = wire.Lease(
        lease=request.lease,
        message_count=reserved.message_count,
        bytes=reserved.bytes,
        reserved_at_ms=reserved.reserved_at_ms,
    )
    return wire.ReserveLeaseResponse(lease=lease, is_new=reserved.is_new, ready_count=reserved.ready_count)


async def ack_leases(
    services: Services, principal: Principal, request: wire.AckLeasesRequest
) -> wire.AckLeasesResponse:
    place = vhost_of(request.vhost)
    settled_count = await services.leases.ack_leases(principal, place, request.queue, request.owner, request.up_to)
    return wire.AckLeasesResponse(settled_count=settled_count)


async def release_leases(
    services: Services, principal: Principal, request: wire.ReleaseLeasesRequest
) -> wire.ReleaseLeasesResponse:
    place, first = vhost_of(request.vhost), getattr(request, "from")  # a word of Python's own
    released_count = await services.leases.release_leases(principal, place, request.queue, request.owner, first)
    return wire.ReleaseLeasesResponse(released_count=released_count)


async def list_leases(
    services: Services, principal: Principal, request: wire.ListLeasesRequest
) -> wire.ListLeasesResponse:
    found = await services.leases.list_leases(principal, vhost_of(request.vhost), request.queue)
    response = wire.ListLeasesResponse(ready_count=found.ready_count)
    wanted = request.owner if request.HasField("owner") else None
    for owner in found.owners:
        if wanted in (None, owner.name):
            into = response.owners.add(owner=owner.name, acked=owner.acked)
            for lease in owner.leases:
                into.leases.add(
                    lease=lease.number,
                    message_count=lease.message_count,
                    bytes=lease.bytes,
                    reserved_at_ms=lease.reserved_at_ms,
                )
    return response
