"""The broker's own state. Every user may ask how it is; where it keeps its files only those who look after it see."""

from penstock.frontends.grpc.caller import Caller
from penstock.frontends.grpc.context import Context
from penstock.identity import Tag
from penstock.v1 import admin_pb2 as admin

_CARETAKERS = frozenset({Tag.ADMINISTRATOR, Tag.MONITORING})


async def get_status(context: Context, caller: Caller, _: admin.GetStatusRequest) -> admin.GetStatusResponse:
    state, metrics, totals = context.node.state(), context.node.metrics(), context.node.vhost_totals()
    response = admin.GetStatusResponse(
        version=state.version,
        node=state.node,
        uptime_seconds=state.uptime_seconds,
        cpu_seconds=state.cpu_seconds,
        resident_bytes=state.resident_bytes,
        connection_count=int(metrics.get("connections", 0)),
        consumer_count=int(metrics.get("consumers", 0)),
        queue_count=sum(vhost.queue_count for vhost in totals),
        ready_count=sum(vhost.ready_count for vhost in totals),
        unsettled_count=sum(vhost.unsettled_count for vhost in totals),
        published_total=int(metrics.get("published_total", 0)),
        confirmed_total=int(metrics.get("confirmed_total", 0)),
        delivered_total=int(metrics.get("delivered_total", 0)),
        settled_total=int(metrics.get("settled_total", 0)),
        recovery=admin.Recovery(
            ms=state.recovery.ms,
            bytes_read=state.recovery.bytes_read,
            records=state.recovery.records,
            torn_bytes=state.recovery.torn_bytes,
        ),
    )
    if _CARETAKERS.intersection(caller.user.tags):
        response.data_dir, response.data_id = state.data_dir, state.data_id
        response.listeners.update(state.listeners)
        for damage in context.node.damages():
            response.damage.add(
                vhost=damage.vhost, file=damage.file, at=damage.at, queues=damage.queues, records=damage.records
            )
    return response


async def backup(context: Context, caller: Caller, request: admin.BackupRequest) -> admin.BackupResponse:
    written = await context.backups.make(caller.actor(""), request.directory)
    return admin.BackupResponse(vhost_count=written.vhost_count, bytes=written.bytes)
