"""The broker's own state, and backups: requests to verbs."""

from penstock.services import Principal, Services
from penstock.v1 import admin_pb2 as admin
from penstock.v1 import backup_pb2 as backups


async def get_status(services: Services, principal: Principal, _: admin.GetStatusRequest) -> admin.GetStatusResponse:
    found = await services.status.get_status(principal)
    state, metrics, totals = found.node, found.metrics, found.vhosts
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
        unacked_count=sum(vhost.unacked_count for vhost in totals),
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
        data_dir=state.data_dir,
        data_id=state.data_id,
        data_format=state.data_format,
        listeners=state.listeners,
    )
    for corruption in found.corruptions:
        response.corruption.add(
            vhost=corruption.vhost,
            file=corruption.file,
            at=corruption.at,
            queues=corruption.queues,
            records=corruption.records,
        )
    return response


async def backup(services: Services, principal: Principal, request: backups.BackupRequest) -> backups.BackupResponse:
    written = await services.backups.make_backup(principal, request.directory)
    return backups.BackupResponse(vhost_count=written.vhost_count, bytes=written.bytes)


async def begin_backup(
    services: Services, principal: Principal, request: backups.BeginBackupRequest
) -> backups.BeginBackupResponse:
    begun = await services.backups.begin_backup(principal, request.request_id)
    return backups.BeginBackupResponse(
        id=begun.id, bytes=begun.bytes, vhost_count=begun.vhost_count, data_id=begun.data_id, version=begun.version
    )


async def read_backup(
    services: Services, principal: Principal, request: backups.ReadBackupRequest
) -> backups.ReadBackupResponse:
    part = await services.backups.read_backup(principal, request.id, request.offset)
    return backups.ReadBackupResponse(content=part.content, is_last=part.is_last, sha256=part.sha256)


async def end_backup(
    services: Services, principal: Principal, request: backups.EndBackupRequest
) -> backups.EndBackupResponse:
    await services.backups.end_backup(principal, request.id)
    return backups.EndBackupResponse()
