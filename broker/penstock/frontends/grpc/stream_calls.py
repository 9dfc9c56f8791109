"""Streams: requests to verbs. The listener reads streams itself, once a reader was admitted."""

from penstock.frontends.grpc.convert import arguments_of, put_arguments
from penstock.frontends.grpc.pages import name_after, next_parts, page_size, parts_after, token_after
from penstock.frontends.native import vhost_of
from penstock.services import ArchiveStanding, PartitionStatus, Principal, Services, StreamStatus, is_full_page
from penstock.v1 import streams_pb2 as wire


async def list_streams(
    services: Services, principal: Principal, request: wire.ListStreamsRequest
) -> wire.ListStreamsResponse:
    wanted = request.name if request.HasField("name") else None
    limit, after = page_size(request.page_size), name_after(request.page_token)
    page = await services.streams.list_streams(
        principal, vhost_of(request.vhost), name=wanted, after=after, limit=limit
    )
    token = token_after(page[-1].name) if wanted is None and is_full_page(page, limit) else ""
    response = wire.ListStreamsResponse(next_page_token=token)
    for status in page:
        _put_stream(status, response.streams.add())
    return response


async def declare_stream(
    services: Services, principal: Principal, request: wire.DeclareStreamRequest
) -> wire.DeclareStreamResponse:
    place, arguments = vhost_of(request.vhost), arguments_of(request.arguments)
    partition_count = request.partitions or 1
    partitions = await services.streams.declare_stream(principal, place, request.name, partition_count, arguments)
    return wire.DeclareStreamResponse(partitions=partitions)


async def delete_stream(
    services: Services, principal: Principal, request: wire.DeleteStreamRequest
) -> wire.DeleteStreamResponse:
    dropped_count = await services.streams.delete_stream(principal, vhost_of(request.vhost), request.name)
    return wire.DeleteStreamResponse(dropped_count=dropped_count)


async def get_offsets(
    services: Services, principal: Principal, request: wire.GetOffsetsRequest
) -> wire.GetOffsetsResponse:
    timestamp_ms = request.timestamp_ms if request.HasField("timestamp_ms") else None
    response = wire.GetOffsetsResponse()
    found = await services.streams.get_offsets(
        principal, vhost_of(request.vhost), request.stream, timestamp_ms=timestamp_ms, archive=request.archive
    )
    for status, archived in found:
        into = response.partitions.add()
        _put_offsets(status, into)
        if archived is not None:
            _put_archived(archived, into.archive)
    return response


async def trim_stream(
    services: Services, principal: Principal, request: wire.TrimStreamRequest
) -> wire.TrimStreamResponse:
    place = vhost_of(request.vhost)
    dropped_count, first = await services.streams.trim_stream(principal, place, request.partition, request.before)
    return wire.TrimStreamResponse(dropped_count=dropped_count, first=first)


async def store_offset(
    services: Services, principal: Principal, request: wire.StoreOffsetRequest
) -> wire.StoreOffsetResponse:
    place = vhost_of(request.vhost)
    await services.streams.store_offset(principal, place, request.partition, request.group, request.offset)
    return wire.StoreOffsetResponse()


async def list_groups(
    services: Services, principal: Principal, request: wire.ListGroupsRequest
) -> wire.ListGroupsResponse:
    limit, parts = page_size(request.page_size), parts_after(request.page_token, 2)
    page = await services.streams.list_groups(
        principal,
        vhost_of(request.vhost),
        request.stream,
        after=None if parts is None else (parts[0], parts[1]),
        limit=limit,
    )
    last = (page[-1].name, page[-1].partition) if len(page) == limit else None
    response = wire.ListGroupsResponse(next_page_token=next_parts(last))
    for group in page:
        response.groups.add(
            name=group.name,
            partition=group.partition,
            offset=group.offset,
            lag=group.lag,
            reader_count=group.reader_count,
        )
    return response


async def delete_group(
    services: Services, principal: Principal, request: wire.DeleteGroupRequest
) -> wire.DeleteGroupResponse:
    place = vhost_of(request.vhost)
    deleted = await services.streams.delete_group(principal, place, request.stream, request.group)
    return wire.DeleteGroupResponse(deleted=deleted)


async def get_producer(
    services: Services, principal: Principal, request: wire.GetProducerRequest
) -> wire.GetProducerResponse:
    sequences = await services.streams.get_producer(principal, vhost_of(request.vhost), request.producer)
    if sequences is None:
        return wire.GetProducerResponse()
    return wire.GetProducerResponse(sequence=sequences.complete, highest=sequences.highest)


async def list_producers(
    services: Services, principal: Principal, request: wire.ListProducersRequest
) -> wire.ListProducersResponse:
    place = vhost_of(request.vhost)
    page = await services.streams.list_producers(principal, place, after=request.after, limit=request.limit)
    response = wire.ListProducersResponse()
    for producer in page:
        response.producers.add(
            name=producer.name,
            sequence=producer.sequence,
            used_at_ms=producer.used_at_ms,
            open=producer.is_open,
            owner=producer.owner or "",
        )
    return response


async def delete_producer(
    services: Services, principal: Principal, request: wire.DeleteProducerRequest
) -> wire.DeleteProducerResponse:
    deleted = await services.streams.delete_producer(principal, vhost_of(request.vhost), request.producer)
    return wire.DeleteProducerResponse(deleted=deleted)


def _put_stream(status: StreamStatus, into: wire.Stream) -> None:
    into.name = status.name
    into.partitions.extend(partition.name for partition in status.partitions)
    put_arguments(status.arguments, into.arguments)
    into.message_count = sum(partition.state.count for partition in status.partitions)
    into.bytes = sum(partition.state.bytes for partition in status.partitions)
    into.reader_count = sum(partition.state.reader_count for partition in status.partitions)


def _put_offsets(status: PartitionStatus, into: wire.PartitionOffsets) -> None:
    into.partition = status.name
    state = status.state
    into.first, into.next, into.message_count, into.bytes = state.first, state.next, state.count, state.bytes
    into.first_timestamp_ms, into.last_timestamp_ms = state.first_timestamp_ms, state.last_timestamp_ms
    into.id = status.queue_id
    if status.at_timestamp is not None:
        into.at_timestamp = status.at_timestamp


def _put_archived(archived: ArchiveStanding, into: wire.ArchivedOffsets) -> None:
    into.first, into.next, into.bytes = archived.first, archived.next, archived.bytes
    into.message_count = archived.message_count
    if archived.at_timestamp is not None:
        into.at_timestamp = archived.at_timestamp
