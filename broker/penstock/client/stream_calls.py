"""The verbs of streams, without I/O, driven as `steps` says; and what a reading asks before it begins."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from google.protobuf.message import Message

from penstock.client.admin_calls import is_last_page
from penstock.client.errors import NotFoundError
from penstock.client.places import Place, ends_of, start_of, timestamp_of
from penstock.client.records import ArchivedOffsets, DeclaredStream, Group, PartitionOffsets, Producer, StreamInfo
from penstock.client.steps import Steps, ask
from penstock.client.transport import ReaderOptions
from penstock.client.values import Value, read_table, write_table
from penstock.v1 import streams_pb2

__all__ = [
    "Reading",
    "declare_stream",
    "delete_group",
    "delete_producer",
    "delete_stream",
    "get_offsets",
    "get_stream",
    "list_groups",
    "list_producers",
    "list_streams",
    "plan_reading",
    "store_offset",
    "stored_sequences",
    "stream_arguments",
    "trim_stream",
]

R = TypeVar("R", bound=Message)

SERVICE = "/penstock.v1.StreamService/"
CREDIT = 8
"""Responses that may be under way or wait to be taken, for each partition."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Options of a reading."""

    from_: Place = "next"
    until: Place | None = None
    group: str = ""
    single_active: bool = False
    from_replica: bool = False


def stream_arguments(
    max_age: str | None, max_bytes: int | None, arguments: Mapping[str, Value] | None, *, dedicated: bool = False
) -> dict[str, Value]:
    named = {"x-max-age": max_age, "x-max-length-bytes": max_bytes, "x-dedicated": dedicated or None}
    return {**(arguments or {}), **{name: value for name, value in named.items() if value is not None}}


def declare_stream(vhost: str, name: str, partitions: int, arguments: Mapping[str, Value]) -> Steps[DeclaredStream]:
    request = streams_pb2.DeclareStreamRequest(vhost=vhost, name=name, partitions=partitions)
    write_table(arguments, request.arguments)
    answer = yield from _call("DeclareStream", request, streams_pb2.DeclareStreamResponse)
    return DeclaredStream(name, tuple(answer.partitions))


def delete_stream(vhost: str, name: str) -> Steps[int]:
    request = streams_pb2.DeleteStreamRequest(vhost=vhost, name=name)
    answer = yield from _call("DeleteStream", request, streams_pb2.DeleteStreamResponse)
    return answer.dropped_count


def list_streams(vhost: str) -> Steps[list[StreamInfo]]:
    request = streams_pb2.ListStreamsRequest(vhost=vhost)
    found: list[StreamInfo] = []
    while True:
        answer = yield from _call("ListStreams", request, streams_pb2.ListStreamsResponse)
        found += map(_stream, answer.streams)
        if is_last_page(request.page_token, answer):
            return found
        request.page_token = answer.next_page_token


def get_stream(vhost: str, name: str) -> Steps[StreamInfo]:
    request = streams_pb2.ListStreamsRequest(vhost=vhost, name=name)
    answer = yield from _call("ListStreams", request, streams_pb2.ListStreamsResponse)
    if not answer.streams:
        raise NotFoundError(f"no stream '{name}' in vhost '{vhost}'; declare it first")
    return _stream(answer.streams[0])


def get_offsets(
    vhost: str, stream: str, at: "datetime | str | None", now_ms: int, *, archive: bool
) -> Steps[list[PartitionOffsets]]:
    partitions = yield from _offsets(vhost, stream, timestamp_of(at, now_ms), archive)
    return [
        PartitionOffsets(
            each.partition,
            each.first,
            each.next,
            each.message_count,
            each.bytes,
            each.first_timestamp_ms,
            each.last_timestamp_ms,
            each.at_timestamp if each.HasField("at_timestamp") else None,
            each.id,
            _archived(each.archive) if each.HasField("archive") else None,
        )
        for each in partitions
    ]


def trim_stream(vhost: str, partition: str, before: int) -> Steps[int]:
    """Trim a partition, and return its first offset afterwards."""
    request = streams_pb2.TrimStreamRequest(vhost=vhost, partition=partition, before=before)
    answer = yield from _call("TrimStream", request, streams_pb2.TrimStreamResponse)
    return answer.first


def store_offset(vhost: str, partition: str, group: str, offset: int) -> Steps[None]:
    request = streams_pb2.StoreOffsetRequest(vhost=vhost, partition=partition, group=group, offset=offset)
    yield from _call("StoreOffset", request, streams_pb2.StoreOffsetResponse)


def list_groups(vhost: str, stream: str) -> Steps[list[Group]]:
    request = streams_pb2.ListGroupsRequest(vhost=vhost, stream=stream)
    found: list[Group] = []
    while True:
        answer = yield from _call("ListGroups", request, streams_pb2.ListGroupsResponse)
        found += map(_group, answer.groups)
        if is_last_page(request.page_token, answer):
            return found
        request.page_token = answer.next_page_token


def delete_group(vhost: str, stream: str, group: str) -> Steps[bool]:
    request = streams_pb2.DeleteGroupRequest(vhost=vhost, stream=stream, group=group)
    answer = yield from _call("DeleteGroup", request, streams_pb2.DeleteGroupResponse)
    return answer.deleted


def stored_sequences(vhost: str, producer: str) -> Steps[tuple[int, int]]:
    """Return the sequence up to which all is stored, and the highest of any log; 0 when nothing is stored."""
    request = streams_pb2.GetProducerRequest(vhost=vhost, producer=producer)
    answer = yield from _call("GetProducer", request, streams_pb2.GetProducerResponse)
    return answer.sequence, max(answer.sequence, answer.highest)


def list_producers(vhost: str) -> Steps[list[Producer]]:
    found: list[Producer] = []
    while True:
        after = found[-1].name if found else ""
        request = streams_pb2.ListProducersRequest(vhost=vhost, after=after)
        answer = yield from _call("ListProducers", request, streams_pb2.ListProducersResponse)
        if not answer.producers:
            return found
        found += (
            Producer(each.name, each.sequence, each.used_at_ms, each.open, each.owner) for each in answer.producers
        )


def delete_producer(vhost: str, producer: str) -> Steps[bool]:
    request = streams_pb2.DeleteProducerRequest(vhost=vhost, producer=producer)
    answer = yield from _call("DeleteProducer", request, streams_pb2.DeleteProducerResponse)
    return answer.deleted


def plan_reading(vhost: str, stream: str, reading: Reading, now_ms: int) -> Steps[list[ReaderOptions]]:
    """Return a reader for each partition."""
    start = start_of(reading.from_, now_ms)
    partitions = yield from _offsets(vhost, stream, timestamp_of(reading.until, now_ms))
    ends = ends_of(reading.until, partitions)
    return [
        ReaderOptions(
            *(vhost, each.partition, start.SerializeToString(), end, CREDIT, reading.group, reading.single_active),
            # The offsets of a group are stored by the leader.
            from_replica=reading.from_replica and not reading.group,
        )
        for each, end in zip(partitions, ends, strict=True)
    ]


def _offsets(
    vhost: str, stream: str, at_ms: int | None, archive: bool = False
) -> Steps[Sequence[streams_pb2.PartitionOffsets]]:
    request = streams_pb2.GetOffsetsRequest(vhost=vhost, stream=stream, timestamp_ms=at_ms, archive=archive)
    answer = yield from _call("GetOffsets", request, streams_pb2.GetOffsetsResponse)
    return answer.partitions


def _call(method: str, message: Message, response: type[R]) -> Steps[R]:
    return ask(SERVICE + method, message, response)


def _archived(archive: streams_pb2.ArchivedOffsets) -> ArchivedOffsets:
    return ArchivedOffsets(
        archive.first,
        archive.next,
        archive.message_count if archive.HasField("message_count") else None,
        archive.bytes,
        archive.at_timestamp if archive.HasField("at_timestamp") else None,
    )


def _group(group: streams_pb2.Group) -> Group:
    offset = group.offset if group.HasField("offset") else None
    return Group(group.name, group.partition, offset, group.lag, group.reader_count)


def _stream(stream: streams_pb2.Stream) -> StreamInfo:
    return StreamInfo(
        stream.name,
        tuple(stream.partitions),
        read_table(stream.arguments),
        stream.message_count,
        stream.bytes,
        stream.reader_count,
    )
