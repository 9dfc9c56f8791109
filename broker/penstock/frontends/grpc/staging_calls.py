"""Stages: from the wire's requests to the verbs of a vhost's stages. Rows and decisions are the listener's, once it was
told where the stage is."""

from google.protobuf.message import DecodeError

from penstock.frontends.grpc.caller import Caller
from penstock.frontends.grpc.context import Context
from penstock.frontends.grpc.convert import vhost_of
from penstock.frontends.grpc.ports import Asked
from penstock.model.errors import InvalidArgumentError, Thing
from penstock.v1 import staging_pb2 as wire


async def open_stage(context: Context, caller: Caller, asked: Asked) -> bytes:
    """A serialised StagePlace. Raises a refusal when the caller may not write to the target."""
    try:
        wanted = wire.StageTarget.FromString(asked.payload)
    except DecodeError as error:
        thing = Thing("message", wire.StageTarget.DESCRIPTOR.full_name)
        raise InvalidArgumentError(thing, "cannot be parsed", "send the message of the contract") from error
    name = vhost_of(wanted.vhost)
    stages = context.vhosts.get(name).stages
    queue_id, target = await stages.open(
        caller.actor(name), wanted.stage, wanted.stream, wanted.exchange, wanted.routing_key
    )
    place = wire.StagePlace(
        vhost=name,
        queue=queue_id,
        exchange=target.exchange,
        routing_key=target.routing_key,
        user=caller.user.name,
    )
    return place.SerializeToString()


async def list_stages(context: Context, caller: Caller, request: wire.ListStagesRequest) -> wire.ListStagesResponse:
    name = vhost_of(request.vhost)
    response = wire.ListStagesResponse()
    for status in await context.vhosts.get(name).stages.statuses(caller.actor(name)):
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


async def delete_stage(context: Context, caller: Caller, request: wire.DeleteStageRequest) -> wire.DeleteStageResponse:
    name = vhost_of(request.vhost)
    dropped = await context.vhosts.get(name).stages.delete(caller.actor(name), request.name)
    return wire.DeleteStageResponse(dropped_count=dropped)
