"""Stages: requests to verbs. `streams` admits to staging."""

from penstock.frontends.native import vhost_of
from penstock.services import Principal, Services
from penstock.v1 import staging_pb2 as wire


async def list_stages(
    services: Services, principal: Principal, request: wire.ListStagesRequest
) -> wire.ListStagesResponse:
    response = wire.ListStagesResponse()
    for status in await services.stages.list_stages(principal, vhost_of(request.vhost)):
        response.stages.add(
            name=status.name,
            exchange=status.target.exchange,
            routing_key=status.target.routing_key,
            row_count=status.row_count,
            bytes=status.bytes,
            last_batch=status.last_batch,
            copying=status.is_copying,
            last_staged_ms=status.last_staged_ms,
        )
    return response


async def delete_stage(
    services: Services, principal: Principal, request: wire.DeleteStageRequest
) -> wire.DeleteStageResponse:
    vhost, name = vhost_of(request.vhost), request.name
    dropped = await services.stages.delete_stage(principal, vhost, name, ended=request.ended)
    return wire.DeleteStageResponse(dropped_count=dropped)
