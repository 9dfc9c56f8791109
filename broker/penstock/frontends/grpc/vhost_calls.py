"""Virtual hosts as a whole, and definitions: requests to verbs."""

from penstock.frontends.native import vhost_of
from penstock.services import Principal, Services
from penstock.v1 import admin_pb2 as admin


async def list_vhosts(services: Services, principal: Principal, _: admin.ListVhostsRequest) -> admin.ListVhostsResponse:
    response = admin.ListVhostsResponse()
    for status in await services.vhosts.list_vhosts(principal):
        response.vhosts.add(
            name=status.name,
            directory=status.directory,
            shards=status.shard_count,
            ready_count=status.ready_count,
            unacked_count=status.unacked_count,
            default_queue_type=status.default_queue_type,
        )
    return response


async def create_vhost(
    services: Services, principal: Principal, request: admin.CreateVhostRequest
) -> admin.CreateVhostResponse:
    created = await services.vhosts.create_vhost(
        principal, request.name, request.shards or 1, request.default_queue_type or None
    )
    return admin.CreateVhostResponse(created=created)


async def set_vhost_shards(
    services: Services, principal: Principal, request: admin.SetVhostShardsRequest
) -> admin.SetVhostShardsResponse:
    await services.vhosts.set_vhost_shards(principal, request.name, request.shards)
    return admin.SetVhostShardsResponse()


async def set_default_queue_type(
    services: Services, principal: Principal, request: admin.SetDefaultQueueTypeRequest
) -> admin.SetDefaultQueueTypeResponse:
    await services.vhosts.set_default_queue_type(principal, request.name, request.default_queue_type)
    return admin.SetDefaultQueueTypeResponse()


async def delete_vhost(
    services: Services, principal: Principal, request: admin.DeleteVhostRequest
) -> admin.DeleteVhostResponse:
    await services.vhosts.delete_vhost(principal, request.name)
    return admin.DeleteVhostResponse()


async def get_vhost_limits(
    services: Services, principal: Principal, request: admin.GetVhostLimitsRequest
) -> admin.GetVhostLimitsResponse:
    found = await services.limits.get_vhost_limits(principal, vhost_of(request.vhost))
    return admin.GetVhostLimitsResponse(
        limits=admin.VhostLimits(**found.limits.by_field()),
        queue_count=found.queue_count,
        connection_count=found.connection_count,
    )


async def set_vhost_limits(
    services: Services, principal: Principal, request: admin.SetVhostLimitsRequest
) -> admin.SetVhostLimitsResponse:
    limits = {field.name: value for field, value in request.limits.ListFields()}
    await services.limits.set_vhost_limits(principal, vhost_of(request.vhost), limits)
    return admin.SetVhostLimitsResponse()


async def export_definitions(
    services: Services, principal: Principal, request: admin.ExportDefinitionsRequest
) -> admin.ExportDefinitionsResponse:
    vhost = vhost_of(request.vhost) if request.HasField("vhost") else None
    return admin.ExportDefinitionsResponse(json=await services.definitions.export_definitions(principal, vhost))


async def import_definitions(
    services: Services, principal: Principal, request: admin.ImportDefinitionsRequest
) -> admin.ImportDefinitionsResponse:
    vhost = vhost_of(request.vhost) if request.HasField("vhost") else None
    imported = await services.definitions.import_definitions(
        principal, request.json, vhost, skips=request.skip_unsupported, shard_count=request.shards or 1
    )
    return admin.ImportDefinitionsResponse(added=imported.added, skipped=imported.skipped)
