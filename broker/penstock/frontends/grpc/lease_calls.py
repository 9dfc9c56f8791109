"""Leases: from the wire's requests to the verbs of a vhost's leases. Who may do what the verbs check."""

from penstock.frontends.grpc.caller import Caller
from penstock.frontends.grpc.context import Context
from penstock.frontends.grpc.convert import existing_queue_name, vhost_of
from penstock.model.names import VhostName
from penstock.v1 import messaging_pb2 as wire
from penstock.vhost.leases import Leases


async def reserve_lease(
    context: Context, caller: Caller, request: wire.ReserveLeaseRequest
) -> wire.ReserveLeaseResponse:
    name, leases = _leases(context, request.vhost)
    queue, limits = existing_queue_name(request.queue), (request.messages_max, request.bytes_max)
    reserved = await leases.reserve(caller.actor(name), queue, request.owner, request.lease, limits)
    count, bytes_, reserved_at_ms, is_new, ready_count = reserved
    lease = wire.Lease(lease=request.lease, message_count=count, bytes=bytes_, reserved_at_ms=reserved_at_ms)
    return wire.ReserveLeaseResponse(lease=lease, is_new=is_new, ready_count=ready_count)


async def ack_leases(context: Context, caller: Caller, request: wire.AckLeasesRequest) -> wire.AckLeasesResponse:
    name, leases = _leases(context, request.vhost)
    queue = existing_queue_name(request.queue)
    settled_count = await leases.ack(caller.actor(name), queue, request.owner, request.up_to)
    return wire.AckLeasesResponse(settled_count=settled_count)


async def release_leases(
    context: Context, caller: Caller, request: wire.ReleaseLeasesRequest
) -> wire.ReleaseLeasesResponse:
    name, leases = _leases(context, request.vhost)
    queue, first = existing_queue_name(request.queue), getattr(request, "from")  # a word of Python's own
    released_count = await leases.release(caller.actor(name), queue, request.owner, first)
    return wire.ReleaseLeasesResponse(released_count=released_count)


async def list_leases(context: Context, caller: Caller, request: wire.ListLeasesRequest) -> wire.ListLeasesResponse:
    name, leases = _leases(context, request.vhost)
    found = await leases.listing(caller.actor(name), existing_queue_name(request.queue))
    response = wire.ListLeasesResponse(ready_count=found.ready_count)
    wanted = request.owner if request.HasField("owner") else None
    for owner, acked, numbered in found.owners:
        if wanted in (None, owner):
            into = response.owners.add(owner=owner, acked=acked)
            for number, count, bytes_, reserved_at_ms in numbered:
                into.leases.add(lease=number, message_count=count, bytes=bytes_, reserved_at_ms=reserved_at_ms)
    return response


def _leases(context: Context, vhost: str) -> tuple[VhostName, Leases]:
    name = vhost_of(vhost)
    return name, context.vhosts.get(name).leases
