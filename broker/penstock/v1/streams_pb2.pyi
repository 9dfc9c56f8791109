from penstock.v1 import message_pb2 as _message_pb2
from penstock.v1 import messaging_pb2 as _messaging_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Place(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PLACE_UNSPECIFIED: _ClassVar[Place]
    PLACE_NEXT: _ClassVar[Place]
    PLACE_FIRST: _ClassVar[Place]
    PLACE_LAST: _ClassVar[Place]
PLACE_UNSPECIFIED: Place
PLACE_NEXT: Place
PLACE_FIRST: Place
PLACE_LAST: Place

class ReadRequest(_message.Message):
    __slots__ = ("open", "credit", "stored")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    open: ReadOpen
    credit: Credit
    stored: Stored
    def __init__(self, open: _Optional[_Union[ReadOpen, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ..., stored: _Optional[_Union[Stored, _Mapping]] = ...) -> None: ...

class ReadOpen(_message.Message):
    __slots__ = ("vhost", "partition", "start", "end", "credit", "group", "single_active", "from_replica")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SINGLE_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    FROM_REPLICA_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    partition: str
    start: Start
    end: int
    credit: int
    group: str
    single_active: bool
    from_replica: bool
    def __init__(self, vhost: _Optional[str] = ..., partition: _Optional[str] = ..., start: _Optional[_Union[Start, _Mapping]] = ..., end: _Optional[int] = ..., credit: _Optional[int] = ..., group: _Optional[str] = ..., single_active: bool = ..., from_replica: bool = ...) -> None: ...

class Start(_message.Message):
    __slots__ = ("place", "offset", "timestamp_ms", "last_count")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_COUNT_FIELD_NUMBER: _ClassVar[int]
    place: Place
    offset: int
    timestamp_ms: int
    last_count: int
    def __init__(self, place: _Optional[_Union[Place, str]] = ..., offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., last_count: _Optional[int] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("responses",)
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    responses: int
    def __init__(self, responses: _Optional[int] = ...) -> None: ...

class Stored(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ("opened", "deliveries", "cancelled", "active")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    opened: ReadOpened
    deliveries: _messaging_pb2.Deliveries
    cancelled: ReadCancelled
    active: Active
    def __init__(self, opened: _Optional[_Union[ReadOpened, _Mapping]] = ..., deliveries: _Optional[_Union[_messaging_pb2.Deliveries, _Mapping]] = ..., cancelled: _Optional[_Union[ReadCancelled, _Mapping]] = ..., active: _Optional[_Union[Active, _Mapping]] = ...) -> None: ...

class ReadOpened(_message.Message):
    __slots__ = ("first", "begin", "next")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    first: int
    begin: int
    next: int
    def __init__(self, first: _Optional[int] = ..., begin: _Optional[int] = ..., next: _Optional[int] = ...) -> None: ...

class ReadCancelled(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Active(_message.Message):
    __slots__ = ("active", "begin")
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    active: bool
    begin: int
    def __init__(self, active: bool = ..., begin: _Optional[int] = ...) -> None: ...

class Stream(_message.Message):
    __slots__ = ("name", "partitions", "arguments", "message_count", "bytes", "reader_count")
    class ArgumentsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _message_pb2.Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_message_pb2.Value, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    READER_COUNT_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: _containers.RepeatedScalarFieldContainer[str]
    arguments: _containers.MessageMap[str, _message_pb2.Value]
    message_count: int
    bytes: int
    reader_count: int
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[_Iterable[str]] = ..., arguments: _Optional[_Mapping[str, _message_pb2.Value]] = ..., message_count: _Optional[int] = ..., bytes: _Optional[int] = ..., reader_count: _Optional[int] = ...) -> None: ...

class ListStreamsRequest(_message.Message):
    __slots__ = ("vhost", "name", "page_size", "page_token")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    name: str
    page_size: int
    page_token: str
    def __init__(self, vhost: _Optional[str] = ..., name: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListStreamsResponse(_message.Message):
    __slots__ = ("streams", "next_page_token")
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    streams: _containers.RepeatedCompositeFieldContainer[Stream]
    next_page_token: str
    def __init__(self, streams: _Optional[_Iterable[_Union[Stream, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeclareStreamRequest(_message.Message):
    __slots__ = ("vhost", "name", "partitions", "arguments")
    class ArgumentsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _message_pb2.Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_message_pb2.Value, _Mapping]] = ...) -> None: ...
    VHOST_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    name: str
    partitions: int
    arguments: _containers.MessageMap[str, _message_pb2.Value]
    def __init__(self, vhost: _Optional[str] = ..., name: _Optional[str] = ..., partitions: _Optional[int] = ..., arguments: _Optional[_Mapping[str, _message_pb2.Value]] = ...) -> None: ...

class DeclareStreamResponse(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, partitions: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteStreamRequest(_message.Message):
    __slots__ = ("vhost", "name")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    name: str
    def __init__(self, vhost: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class DeleteStreamResponse(_message.Message):
    __slots__ = ("dropped_count",)
    DROPPED_COUNT_FIELD_NUMBER: _ClassVar[int]
    dropped_count: int
    def __init__(self, dropped_count: _Optional[int] = ...) -> None: ...

class GetOffsetsRequest(_message.Message):
    __slots__ = ("vhost", "stream", "timestamp_ms", "archive")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    ARCHIVE_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    stream: str
    timestamp_ms: int
    archive: bool
    def __init__(self, vhost: _Optional[str] = ..., stream: _Optional[str] = ..., timestamp_ms: _Optional[int] = ..., archive: bool = ...) -> None: ...

class GetOffsetsResponse(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionOffsets]
    def __init__(self, partitions: _Optional[_Iterable[_Union[PartitionOffsets, _Mapping]]] = ...) -> None: ...

class PartitionOffsets(_message.Message):
    __slots__ = ("partition", "first", "next", "message_count", "bytes", "first_timestamp_ms", "last_timestamp_ms", "at_timestamp", "id", "archive")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FIRST_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    AT_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    ARCHIVE_FIELD_NUMBER: _ClassVar[int]
    partition: str
    first: int
    next: int
    message_count: int
    bytes: int
    first_timestamp_ms: int
    last_timestamp_ms: int
    at_timestamp: int
    id: int
    archive: ArchivedOffsets
    def __init__(self, partition: _Optional[str] = ..., first: _Optional[int] = ..., next: _Optional[int] = ..., message_count: _Optional[int] = ..., bytes: _Optional[int] = ..., first_timestamp_ms: _Optional[int] = ..., last_timestamp_ms: _Optional[int] = ..., at_timestamp: _Optional[int] = ..., id: _Optional[int] = ..., archive: _Optional[_Union[ArchivedOffsets, _Mapping]] = ...) -> None: ...

class ArchivedOffsets(_message.Message):
    __slots__ = ("first", "next", "message_count", "bytes", "at_timestamp")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    AT_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    first: int
    next: int
    message_count: int
    bytes: int
    at_timestamp: int
    def __init__(self, first: _Optional[int] = ..., next: _Optional[int] = ..., message_count: _Optional[int] = ..., bytes: _Optional[int] = ..., at_timestamp: _Optional[int] = ...) -> None: ...

class TrimStreamRequest(_message.Message):
    __slots__ = ("vhost", "partition", "before")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    partition: str
    before: int
    def __init__(self, vhost: _Optional[str] = ..., partition: _Optional[str] = ..., before: _Optional[int] = ...) -> None: ...

class TrimStreamResponse(_message.Message):
    __slots__ = ("dropped_count", "first")
    DROPPED_COUNT_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    dropped_count: int
    first: int
    def __init__(self, dropped_count: _Optional[int] = ..., first: _Optional[int] = ...) -> None: ...

class StoreOffsetRequest(_message.Message):
    __slots__ = ("vhost", "partition", "group", "offset")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    partition: str
    group: str
    offset: int
    def __init__(self, vhost: _Optional[str] = ..., partition: _Optional[str] = ..., group: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class StoreOffsetResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ("vhost", "stream", "page_size", "page_token")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    stream: str
    page_size: int
    page_token: str
    def __init__(self, vhost: _Optional[str] = ..., stream: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("groups", "next_page_token")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[Group]
    next_page_token: str
    def __init__(self, groups: _Optional[_Iterable[_Union[Group, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Group(_message.Message):
    __slots__ = ("name", "partition", "offset", "lag", "reader_count")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    READER_COUNT_FIELD_NUMBER: _ClassVar[int]
    name: str
    partition: str
    offset: int
    lag: int
    reader_count: int
    def __init__(self, name: _Optional[str] = ..., partition: _Optional[str] = ..., offset: _Optional[int] = ..., lag: _Optional[int] = ..., reader_count: _Optional[int] = ...) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("vhost", "stream", "group")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    stream: str
    group: str
    def __init__(self, vhost: _Optional[str] = ..., stream: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class DeleteGroupResponse(_message.Message):
    __slots__ = ("deleted",)
    DELETED_FIELD_NUMBER: _ClassVar[int]
    deleted: bool
    def __init__(self, deleted: bool = ...) -> None: ...

class GetProducerRequest(_message.Message):
    __slots__ = ("vhost", "producer")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    producer: str
    def __init__(self, vhost: _Optional[str] = ..., producer: _Optional[str] = ...) -> None: ...

class GetProducerResponse(_message.Message):
    __slots__ = ("sequence", "highest")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    highest: int
    def __init__(self, sequence: _Optional[int] = ..., highest: _Optional[int] = ...) -> None: ...

class ListProducersRequest(_message.Message):
    __slots__ = ("vhost", "after", "limit")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    after: str
    limit: int
    def __init__(self, vhost: _Optional[str] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListProducersResponse(_message.Message):
    __slots__ = ("producers",)
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    producers: _containers.RepeatedCompositeFieldContainer[ProducerInfo]
    def __init__(self, producers: _Optional[_Iterable[_Union[ProducerInfo, _Mapping]]] = ...) -> None: ...

class ProducerInfo(_message.Message):
    __slots__ = ("name", "sequence", "used_at_ms", "open", "owner")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    USED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    name: str
    sequence: int
    used_at_ms: int
    open: bool
    owner: str
    def __init__(self, name: _Optional[str] = ..., sequence: _Optional[int] = ..., used_at_ms: _Optional[int] = ..., open: bool = ..., owner: _Optional[str] = ...) -> None: ...

class DeleteProducerRequest(_message.Message):
    __slots__ = ("vhost", "producer")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    producer: str
    def __init__(self, vhost: _Optional[str] = ..., producer: _Optional[str] = ...) -> None: ...

class DeleteProducerResponse(_message.Message):
    __slots__ = ("deleted",)
    DELETED_FIELD_NUMBER: _ClassVar[int]
    deleted: bool
    def __init__(self, deleted: bool = ...) -> None: ...
