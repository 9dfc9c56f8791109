"""Streams: from the wire's requests to the verbs of a vhost's streams. Who may do what the verbs check; reading itself
is the listener's, once it was admitted."""

from penstock.frontends.grpc.caller import Caller
from penstock.frontends.grpc.context import Context
from penstock.frontends.grpc.convert import arguments_of, existing_queue_name, put_arguments, vhost_of
from penstock.metadata.commands import DeclareStream
from penstock.model.names import VhostName, check_name
from penstock.services.ports import ArchivedPart, ArchiveStanding
from penstock.v1 import streams_pb2 as wire
from penstock.vhost.streams import PRODUCERS_PAGE_MAX, PartitionStatus, Streams, StreamStatus


async def list_streams(context: Context, caller: Caller, request: wire.ListStreamsRequest) -> wire.ListStreamsResponse:
    name, streams = _streams(context, request.vhost)
    wanted = request.name if request.HasField("name") else None
    response = wire.ListStreamsResponse()
    for status in await streams.statuses(caller.actor(name), wanted):
        _put_stream(status, response.streams.add())
    return response


async def declare_stream(
    context: Context, caller: Caller, request: wire.DeclareStreamRequest
) -> wire.DeclareStreamResponse:
    name, streams = _streams(context, request.vhost)
    command = DeclareStream(
        check_name("stream", request.name), request.partitions or 1, arguments_of(request.arguments)
    )
    declared = await streams.declare(caller.actor(name), command)
    if declared.is_new:
        context.forget()  # publishers may have learned that there is none
    return wire.DeclareStreamResponse(partitions=declared.partitions)


async def delete_stream(
    context: Context, caller: Caller, request: wire.DeleteStreamRequest
) -> wire.DeleteStreamResponse:
    name, streams = _streams(context, request.vhost)
    dropped_count = await streams.delete(caller.actor(name), check_name("stream", request.name))
    context.forget()
    return wire.DeleteStreamResponse(dropped_count=dropped_count)


async def get_offsets(context: Context, caller: Caller, request: wire.GetOffsetsRequest) -> wire.GetOffsetsResponse:
    name, streams = _streams(context, request.vhost)
    timestamp_ms = request.timestamp_ms if request.HasField("timestamp_ms") else None
    response = wire.GetOffsetsResponse()
    for status in await streams.offsets(caller.actor(name), request.stream, timestamp_ms):
        into = response.partitions.add()
        _put_offsets(status, into)
        if request.archive and context.archives is not None:
            part = ArchivedPart(name, streams.stream_of(status.name), status.name, status.queue_id, status.state)
            archived = await context.archives.standing(part, timestamp_ms)
            if archived is not None:
                _put_archived(archived, into.archive)
    return response


async def trim_stream(context: Context, caller: Caller, request: wire.TrimStreamRequest) -> wire.TrimStreamResponse:
    name, streams = _streams(context, request.vhost)
    partition = existing_queue_name(request.partition)
    dropped_count, first = await streams.trim(caller.actor(name), partition, request.before)
    return wire.TrimStreamResponse(dropped_count=dropped_count, first=first)


async def store_offset(context: Context, caller: Caller, request: wire.StoreOffsetRequest) -> wire.StoreOffsetResponse:
    name, streams = _streams(context, request.vhost)
    partition = existing_queue_name(request.partition)
    await streams.store_offset(caller.actor(name), partition, request.group, request.offset)
    return wire.StoreOffsetResponse()


async def list_groups(context: Context, caller: Caller, request: wire.ListGroupsRequest) -> wire.ListGroupsResponse:
    name, streams = _streams(context, request.vhost)
    response = wire.ListGroupsResponse()
    for group in await streams.groups(caller.actor(name), request.stream):
        response.groups.add(
            name=group.name,
            partition=group.partition,
            offset=group.offset,
            lag=group.lag,
            reader_count=group.reader_count,
        )
    return response


async def delete_group(context: Context, caller: Caller, request: wire.DeleteGroupRequest) -> wire.DeleteGroupResponse:
    name, streams = _streams(context, request.vhost)
    deleted = await streams.delete_group(caller.actor(name), request.stream, request.group)
    return wire.DeleteGroupResponse(deleted=deleted)


async def get_producer(context: Context, caller: Caller, request: wire.GetProducerRequest) -> wire.GetProducerResponse:
    name, streams = _streams(context, request.vhost)
    sequence = await streams.producer_sequence(caller.actor(name), request.producer)
    return wire.GetProducerResponse(sequence=sequence)


async def list_producers(
    context: Context, caller: Caller, request: wire.ListProducersRequest
) -> wire.ListProducersResponse:
    name, streams = _streams(context, request.vhost)
    page = await streams.producers(caller.actor(name), request.after, request.limit or PRODUCERS_PAGE_MAX)
    response = wire.ListProducersResponse()
    for producer, sequence, used_at_ms, is_open in page:
        response.producers.add(name=producer, sequence=sequence, used_at_ms=used_at_ms, open=is_open)
    return response


async def delete_producer(
    context: Context, caller: Caller, request: wire.DeleteProducerRequest
) -> wire.DeleteProducerResponse:
    name, streams = _streams(context, request.vhost)
    return wire.DeleteProducerResponse(deleted=await streams.delete_producer(caller.actor(name), request.producer))


def _streams(context: Context, vhost: str) -> tuple[VhostName, Streams]:
    name = vhost_of(vhost)
    return name, context.vhosts.get(name).streams


def _put_stream(status: StreamStatus, into: wire.Stream) -> None:
    into.name = status.name
    into.partitions.extend(partition.name for partition in status.partitions)
    put_arguments(status.arguments, into.arguments)
    into.message_count = sum(partition.state[2] for partition in status.partitions)
    into.bytes = sum(partition.state[3] for partition in status.partitions)
    into.reader_count = sum(partition.state[6] for partition in status.partitions)


def _put_offsets(status: PartitionStatus, into: wire.PartitionOffsets) -> None:
    into.partition = status.name
    (
        into.first,
        into.next,
        into.message_count,
        into.bytes,
        into.first_timestamp_ms,
        into.last_timestamp_ms,
        _,
    ) = status.state
    into.id = status.queue_id
    if status.at_timestamp is not None:
        into.at_timestamp = status.at_timestamp


def _put_archived(archived: ArchiveStanding, into: wire.ArchivedOffsets) -> None:
    into.first, into.next, into.bytes = archived.first, archived.next, archived.bytes
    if archived.message_count is not None:
        into.message_count = archived.message_count
    if archived.at_timestamp is not None:
        into.at_timestamp = archived.at_timestamp
