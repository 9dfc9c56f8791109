from penstock.v1 import backup_pb2 as _backup_pb2
from penstock.v1 import cluster_pb2 as _cluster_pb2
from penstock.v1 import message_pb2 as _message_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DestinationKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DESTINATION_KIND_UNSPECIFIED: _ClassVar[DestinationKind]
    DESTINATION_KIND_QUEUE: _ClassVar[DestinationKind]
    DESTINATION_KIND_EXCHANGE: _ClassVar[DestinationKind]
DESTINATION_KIND_UNSPECIFIED: DestinationKind
DESTINATION_KIND_QUEUE: DestinationKind
DESTINATION_KIND_EXCHANGE: DestinationKind

class Connection(_message.Message):
    __slots__ = ("id", "peer", "users", "vhosts", "consumer_count")
    ID_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    VHOSTS_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_COUNT_FIELD_NUMBER: _ClassVar[int]
    id: int
    peer: str
    users: _containers.RepeatedScalarFieldContainer[str]
    vhosts: _containers.RepeatedScalarFieldContainer[str]
    consumer_count: int
    def __init__(self, id: _Optional[int] = ..., peer: _Optional[str] = ..., users: _Optional[_Iterable[str]] = ..., vhosts: _Optional[_Iterable[str]] = ..., consumer_count: _Optional[int] = ...) -> None: ...

class ListConnectionsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListConnectionsResponse(_message.Message):
    __slots__ = ("connections", "next_page_token")
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    connections: _containers.RepeatedCompositeFieldContainer[Connection]
    next_page_token: str
    def __init__(self, connections: _Optional[_Iterable[_Union[Connection, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class CloseConnectionRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: int
    def __init__(self, id: _Optional[int] = ...) -> None: ...

class CloseConnectionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Consumer(_message.Message):
    __slots__ = ("vhost", "queue", "consumer_tag", "user", "connection", "prefetch", "auto_ack", "exclusive", "active", "priority")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_TAG_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_FIELD_NUMBER: _ClassVar[int]
    PREFETCH_FIELD_NUMBER: _ClassVar[int]
    AUTO_ACK_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    queue: str
    consumer_tag: str
    user: str
    connection: int
    prefetch: int
    auto_ack: bool
    exclusive: bool
    active: bool
    priority: int
    def __init__(self, vhost: _Optional[str] = ..., queue: _Optional[str] = ..., consumer_tag: _Optional[str] = ..., user: _Optional[str] = ..., connection: _Optional[int] = ..., prefetch: _Optional[int] = ..., auto_ack: bool = ..., exclusive: bool = ..., active: bool = ..., priority: _Optional[int] = ...) -> None: ...

class ListConsumersRequest(_message.Message):
    __slots__ = ("vhost", "page_size", "page_token")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    page_size: int
    page_token: str
    def __init__(self, vhost: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListConsumersResponse(_message.Message):
    __slots__ = ("consumers", "next_page_token")
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    consumers: _containers.RepeatedCompositeFieldContainer[Consumer]
    next_page_token: str
    def __init__(self, consumers: _Optional[_Iterable[_Union[Consumer, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("version", "node", "uptime_seconds", "cpu_seconds", "resident_bytes", "connection_count", "consumer_count", "queue_count", "ready_count", "unacked_count", "published_total", "confirmed_total", "delivered_total", "settled_total", "recovery", "data_dir", "listeners", "corruption", "data_id", "data_format")
    class ListenersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    UPTIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_COUNT_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_COUNT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    READY_COUNT_FIELD_NUMBER: _ClassVar[int]
    UNACKED_COUNT_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    SETTLED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_FIELD_NUMBER: _ClassVar[int]
    DATA_DIR_FIELD_NUMBER: _ClassVar[int]
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    CORRUPTION_FIELD_NUMBER: _ClassVar[int]
    DATA_ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FORMAT_FIELD_NUMBER: _ClassVar[int]
    version: str
    node: str
    uptime_seconds: float
    cpu_seconds: float
    resident_bytes: int
    connection_count: int
    consumer_count: int
    queue_count: int
    ready_count: int
    unacked_count: int
    published_total: int
    confirmed_total: int
    delivered_total: int
    settled_total: int
    recovery: Recovery
    data_dir: str
    listeners: _containers.ScalarMap[str, str]
    corruption: _containers.RepeatedCompositeFieldContainer[Corruption]
    data_id: str
    data_format: int
    def __init__(self, version: _Optional[str] = ..., node: _Optional[str] = ..., uptime_seconds: _Optional[float] = ..., cpu_seconds: _Optional[float] = ..., resident_bytes: _Optional[int] = ..., connection_count: _Optional[int] = ..., consumer_count: _Optional[int] = ..., queue_count: _Optional[int] = ..., ready_count: _Optional[int] = ..., unacked_count: _Optional[int] = ..., published_total: _Optional[int] = ..., confirmed_total: _Optional[int] = ..., delivered_total: _Optional[int] = ..., settled_total: _Optional[int] = ..., recovery: _Optional[_Union[Recovery, _Mapping]] = ..., data_dir: _Optional[str] = ..., listeners: _Optional[_Mapping[str, str]] = ..., corruption: _Optional[_Iterable[_Union[Corruption, _Mapping]]] = ..., data_id: _Optional[str] = ..., data_format: _Optional[int] = ...) -> None: ...

class Corruption(_message.Message):
    __slots__ = ("vhost", "file", "at", "queues", "records")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    file: str
    at: int
    queues: _containers.RepeatedScalarFieldContainer[str]
    records: int
    def __init__(self, vhost: _Optional[str] = ..., file: _Optional[str] = ..., at: _Optional[int] = ..., queues: _Optional[_Iterable[str]] = ..., records: _Optional[int] = ...) -> None: ...

class Recovery(_message.Message):
    __slots__ = ("ms", "bytes_read", "records", "torn_bytes")
    MS_FIELD_NUMBER: _ClassVar[int]
    BYTES_READ_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    TORN_BYTES_FIELD_NUMBER: _ClassVar[int]
    ms: float
    bytes_read: int
    records: int
    torn_bytes: int
    def __init__(self, ms: _Optional[float] = ..., bytes_read: _Optional[int] = ..., records: _Optional[int] = ..., torn_bytes: _Optional[int] = ...) -> None: ...

class Vhost(_message.Message):
    __slots__ = ("name", "directory", "ready_count", "unacked_count", "shards", "default_queue_type")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    READY_COUNT_FIELD_NUMBER: _ClassVar[int]
    UNACKED_COUNT_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_QUEUE_TYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    directory: str
    ready_count: int
    unacked_count: int
    shards: int
    default_queue_type: str
    def __init__(self, name: _Optional[str] = ..., directory: _Optional[str] = ..., ready_count: _Optional[int] = ..., unacked_count: _Optional[int] = ..., shards: _Optional[int] = ..., default_queue_type: _Optional[str] = ...) -> None: ...

class ListVhostsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListVhostsResponse(_message.Message):
    __slots__ = ("vhosts",)
    VHOSTS_FIELD_NUMBER: _ClassVar[int]
    vhosts: _containers.RepeatedCompositeFieldContainer[Vhost]
    def __init__(self, vhosts: _Optional[_Iterable[_Union[Vhost, _Mapping]]] = ...) -> None: ...

class CreateVhostRequest(_message.Message):
    __slots__ = ("name", "shards", "default_queue_type")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_QUEUE_TYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    shards: int
    default_queue_type: str
    def __init__(self, name: _Optional[str] = ..., shards: _Optional[int] = ..., default_queue_type: _Optional[str] = ...) -> None: ...

class CreateVhostResponse(_message.Message):
    __slots__ = ("created",)
    CREATED_FIELD_NUMBER: _ClassVar[int]
    created: bool
    def __init__(self, created: bool = ...) -> None: ...

class SetVhostShardsRequest(_message.Message):
    __slots__ = ("name", "shards")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    shards: int
    def __init__(self, name: _Optional[str] = ..., shards: _Optional[int] = ...) -> None: ...

class SetVhostShardsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetDefaultQueueTypeRequest(_message.Message):
    __slots__ = ("name", "default_queue_type")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_QUEUE_TYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    default_queue_type: str
    def __init__(self, name: _Optional[str] = ..., default_queue_type: _Optional[str] = ...) -> None: ...

class SetDefaultQueueTypeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteVhostRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteVhostResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class VhostLimits(_message.Message):
    __slots__ = ("queues_max", "connections_max", "publish_rate", "publish_bytes_rate", "in_flight_bytes_max", "message_bytes_max")
    QUEUES_MAX_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_MAX_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_RATE_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_BYTES_RATE_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    queues_max: int
    connections_max: int
    publish_rate: int
    publish_bytes_rate: int
    in_flight_bytes_max: int
    message_bytes_max: int
    def __init__(self, queues_max: _Optional[int] = ..., connections_max: _Optional[int] = ..., publish_rate: _Optional[int] = ..., publish_bytes_rate: _Optional[int] = ..., in_flight_bytes_max: _Optional[int] = ..., message_bytes_max: _Optional[int] = ...) -> None: ...

class UserLimits(_message.Message):
    __slots__ = ("connections_max", "streams_max", "publish_rate", "publish_bytes_rate", "in_flight_bytes_max", "message_bytes_max")
    CONNECTIONS_MAX_FIELD_NUMBER: _ClassVar[int]
    STREAMS_MAX_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_RATE_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_BYTES_RATE_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    connections_max: int
    streams_max: int
    publish_rate: int
    publish_bytes_rate: int
    in_flight_bytes_max: int
    message_bytes_max: int
    def __init__(self, connections_max: _Optional[int] = ..., streams_max: _Optional[int] = ..., publish_rate: _Optional[int] = ..., publish_bytes_rate: _Optional[int] = ..., in_flight_bytes_max: _Optional[int] = ..., message_bytes_max: _Optional[int] = ...) -> None: ...

class GetUserLimitsRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetUserLimitsResponse(_message.Message):
    __slots__ = ("limits", "connection_count")
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_COUNT_FIELD_NUMBER: _ClassVar[int]
    limits: UserLimits
    connection_count: int
    def __init__(self, limits: _Optional[_Union[UserLimits, _Mapping]] = ..., connection_count: _Optional[int] = ...) -> None: ...

class SetUserLimitsRequest(_message.Message):
    __slots__ = ("name", "limits")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    name: str
    limits: UserLimits
    def __init__(self, name: _Optional[str] = ..., limits: _Optional[_Union[UserLimits, _Mapping]] = ...) -> None: ...

class SetUserLimitsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetVhostLimitsRequest(_message.Message):
    __slots__ = ("vhost",)
    VHOST_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    def __init__(self, vhost: _Optional[str] = ...) -> None: ...

class GetVhostLimitsResponse(_message.Message):
    __slots__ = ("limits", "queue_count", "connection_count")
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_COUNT_FIELD_NUMBER: _ClassVar[int]
    limits: VhostLimits
    queue_count: int
    connection_count: int
    def __init__(self, limits: _Optional[_Union[VhostLimits, _Mapping]] = ..., queue_count: _Optional[int] = ..., connection_count: _Optional[int] = ...) -> None: ...

class SetVhostLimitsRequest(_message.Message):
    __slots__ = ("vhost", "limits")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    limits: VhostLimits
    def __init__(self, vhost: _Optional[str] = ..., limits: _Optional[_Union[VhostLimits, _Mapping]] = ...) -> None: ...

class SetVhostLimitsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class User(_message.Message):
    __slots__ = ("name", "tags")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ...) -> None: ...

class ListUsersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListUsersResponse(_message.Message):
    __slots__ = ("users",)
    USERS_FIELD_NUMBER: _ClassVar[int]
    users: _containers.RepeatedCompositeFieldContainer[User]
    def __init__(self, users: _Optional[_Iterable[_Union[User, _Mapping]]] = ...) -> None: ...

class PutUserRequest(_message.Message):
    __slots__ = ("name", "password", "tags", "keep_tags", "force", "random_password")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PASSWORD_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    KEEP_TAGS_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    RANDOM_PASSWORD_FIELD_NUMBER: _ClassVar[int]
    name: str
    password: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    keep_tags: bool
    force: bool
    random_password: bool
    def __init__(self, name: _Optional[str] = ..., password: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., keep_tags: bool = ..., force: bool = ..., random_password: bool = ...) -> None: ...

class PutUserResponse(_message.Message):
    __slots__ = ("created",)
    CREATED_FIELD_NUMBER: _ClassVar[int]
    created: bool
    def __init__(self, created: bool = ...) -> None: ...

class DeleteUserRequest(_message.Message):
    __slots__ = ("name", "force")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    force: bool
    def __init__(self, name: _Optional[str] = ..., force: bool = ...) -> None: ...

class DeleteUserResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RefreshTokenRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RefreshTokenResponse(_message.Message):
    __slots__ = ("expires_at_ms",)
    EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    expires_at_ms: int
    def __init__(self, expires_at_ms: _Optional[int] = ...) -> None: ...

class Permission(_message.Message):
    __slots__ = ("user", "vhost", "configure", "write", "read")
    USER_FIELD_NUMBER: _ClassVar[int]
    VHOST_FIELD_NUMBER: _ClassVar[int]
    CONFIGURE_FIELD_NUMBER: _ClassVar[int]
    WRITE_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    user: str
    vhost: str
    configure: str
    write: str
    read: str
    def __init__(self, user: _Optional[str] = ..., vhost: _Optional[str] = ..., configure: _Optional[str] = ..., write: _Optional[str] = ..., read: _Optional[str] = ...) -> None: ...

class ListPermissionsRequest(_message.Message):
    __slots__ = ("user", "vhost")
    USER_FIELD_NUMBER: _ClassVar[int]
    VHOST_FIELD_NUMBER: _ClassVar[int]
    user: str
    vhost: str
    def __init__(self, user: _Optional[str] = ..., vhost: _Optional[str] = ...) -> None: ...

class ListPermissionsResponse(_message.Message):
    __slots__ = ("permissions",)
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    permissions: _containers.RepeatedCompositeFieldContainer[Permission]
    def __init__(self, permissions: _Optional[_Iterable[_Union[Permission, _Mapping]]] = ...) -> None: ...

class SetPermissionRequest(_message.Message):
    __slots__ = ("permission",)
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    permission: Permission
    def __init__(self, permission: _Optional[_Union[Permission, _Mapping]] = ...) -> None: ...

class SetPermissionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeletePermissionRequest(_message.Message):
    __slots__ = ("user", "vhost")
    USER_FIELD_NUMBER: _ClassVar[int]
    VHOST_FIELD_NUMBER: _ClassVar[int]
    user: str
    vhost: str
    def __init__(self, user: _Optional[str] = ..., vhost: _Optional[str] = ...) -> None: ...

class DeletePermissionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TopicPermission(_message.Message):
    __slots__ = ("user", "vhost", "exchange", "write", "read")
    USER_FIELD_NUMBER: _ClassVar[int]
    VHOST_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    WRITE_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    user: str
    vhost: str
    exchange: str
    write: str
    read: str
    def __init__(self, user: _Optional[str] = ..., vhost: _Optional[str] = ..., exchange: _Optional[str] = ..., write: _Optional[str] = ..., read: _Optional[str] = ...) -> None: ...

class ListTopicPermissionsRequest(_message.Message):
    __slots__ = ("user", "vhost")
    USER_FIELD_NUMBER: _ClassVar[int]
    VHOST_FIELD_NUMBER: _ClassVar[int]
    user: str
    vhost: str
    def __init__(self, user: _Optional[str] = ..., vhost: _Optional[str] = ...) -> None: ...

class ListTopicPermissionsResponse(_message.Message):
    __slots__ = ("permissions",)
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    permissions: _containers.RepeatedCompositeFieldContainer[TopicPermission]
    def __init__(self, permissions: _Optional[_Iterable[_Union[TopicPermission, _Mapping]]] = ...) -> None: ...

class SetTopicPermissionRequest(_message.Message):
    __slots__ = ("permission",)
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    permission: TopicPermission
    def __init__(self, permission: _Optional[_Union[TopicPermission, _Mapping]] = ...) -> None: ...

class SetTopicPermissionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteTopicPermissionRequest(_message.Message):
    __slots__ = ("user", "vhost", "exchange")
    USER_FIELD_NUMBER: _ClassVar[int]
    VHOST_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    user: str
    vhost: str
    exchange: str
    def __init__(self, user: _Optional[str] = ..., vhost: _Optional[str] = ..., exchange: _Optional[str] = ...) -> None: ...

class DeleteTopicPermissionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Exchange(_message.Message):
    __slots__ = ("name", "type", "durable", "auto_delete", "internal", "arguments")
    class ArgumentsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _message_pb2.Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_message_pb2.Value, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    AUTO_DELETE_FIELD_NUMBER: _ClassVar[int]
    INTERNAL_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: _containers.MessageMap[str, _message_pb2.Value]
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., durable: bool = ..., auto_delete: bool = ..., internal: bool = ..., arguments: _Optional[_Mapping[str, _message_pb2.Value]] = ...) -> None: ...

class ListExchangesRequest(_message.Message):
    __slots__ = ("vhost", "page_size", "page_token")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    page_size: int
    page_token: str
    def __init__(self, vhost: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListExchangesResponse(_message.Message):
    __slots__ = ("exchanges", "next_page_token")
    EXCHANGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    exchanges: _containers.RepeatedCompositeFieldContainer[Exchange]
    next_page_token: str
    def __init__(self, exchanges: _Optional[_Iterable[_Union[Exchange, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeclareExchangeRequest(_message.Message):
    __slots__ = ("vhost", "exchange", "passive")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    PASSIVE_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    exchange: Exchange
    passive: bool
    def __init__(self, vhost: _Optional[str] = ..., exchange: _Optional[_Union[Exchange, _Mapping]] = ..., passive: bool = ...) -> None: ...

class DeclareExchangeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteExchangeRequest(_message.Message):
    __slots__ = ("vhost", "name", "if_unused")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    IF_UNUSED_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    name: str
    if_unused: bool
    def __init__(self, vhost: _Optional[str] = ..., name: _Optional[str] = ..., if_unused: bool = ...) -> None: ...

class DeleteExchangeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Queue(_message.Message):
    __slots__ = ("name", "durable", "exclusive", "auto_delete", "arguments", "ready_count", "unacked_count", "ready_bytes", "unacked_bytes", "consumer_count", "published_count", "delivered_count", "settled_count", "delayed_count", "deduplicated_count", "effective_arguments", "policy", "operator_policy")
    class ArgumentsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _message_pb2.Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_message_pb2.Value, _Mapping]] = ...) -> None: ...
    class EffectiveArgumentsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _message_pb2.Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_message_pb2.Value, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    AUTO_DELETE_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    READY_COUNT_FIELD_NUMBER: _ClassVar[int]
    UNACKED_COUNT_FIELD_NUMBER: _ClassVar[int]
    READY_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNACKED_BYTES_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_COUNT_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_COUNT_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_COUNT_FIELD_NUMBER: _ClassVar[int]
    SETTLED_COUNT_FIELD_NUMBER: _ClassVar[int]
    DELAYED_COUNT_FIELD_NUMBER: _ClassVar[int]
    DEDUPLICATED_COUNT_FIELD_NUMBER: _ClassVar[int]
    EFFECTIVE_ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_POLICY_FIELD_NUMBER: _ClassVar[int]
    name: str
    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: _containers.MessageMap[str, _message_pb2.Value]
    ready_count: int
    unacked_count: int
    ready_bytes: int
    unacked_bytes: int
    consumer_count: int
    published_count: int
    delivered_count: int
    settled_count: int
    delayed_count: int
    deduplicated_count: int
    effective_arguments: _containers.MessageMap[str, _message_pb2.Value]
    policy: str
    operator_policy: str
    def __init__(self, name: _Optional[str] = ..., durable: bool = ..., exclusive: bool = ..., auto_delete: bool = ..., arguments: _Optional[_Mapping[str, _message_pb2.Value]] = ..., ready_count: _Optional[int] = ..., unacked_count: _Optional[int] = ..., ready_bytes: _Optional[int] = ..., unacked_bytes: _Optional[int] = ..., consumer_count: _Optional[int] = ..., published_count: _Optional[int] = ..., delivered_count: _Optional[int] = ..., settled_count: _Optional[int] = ..., delayed_count: _Optional[int] = ..., deduplicated_count: _Optional[int] = ..., effective_arguments: _Optional[_Mapping[str, _message_pb2.Value]] = ..., policy: _Optional[str] = ..., operator_policy: _Optional[str] = ...) -> None: ...

class ListQueuesRequest(_message.Message):
    __slots__ = ("vhost", "page_size", "page_token", "name")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    page_size: int
    page_token: str
    name: str
    def __init__(self, vhost: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class ListQueuesResponse(_message.Message):
    __slots__ = ("queues", "next_page_token")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[Queue]
    next_page_token: str
    def __init__(self, queues: _Optional[_Iterable[_Union[Queue, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeclareQueueRequest(_message.Message):
    __slots__ = ("vhost", "queue", "passive")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PASSIVE_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    queue: Queue
    passive: bool
    def __init__(self, vhost: _Optional[str] = ..., queue: _Optional[_Union[Queue, _Mapping]] = ..., passive: bool = ...) -> None: ...

class DeclareQueueResponse(_message.Message):
    __slots__ = ("name", "ready_count", "consumer_count")
    NAME_FIELD_NUMBER: _ClassVar[int]
    READY_COUNT_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_COUNT_FIELD_NUMBER: _ClassVar[int]
    name: str
    ready_count: int
    consumer_count: int
    def __init__(self, name: _Optional[str] = ..., ready_count: _Optional[int] = ..., consumer_count: _Optional[int] = ...) -> None: ...

class DeleteQueueRequest(_message.Message):
    __slots__ = ("vhost", "name", "if_unused", "if_empty")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    IF_UNUSED_FIELD_NUMBER: _ClassVar[int]
    IF_EMPTY_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    name: str
    if_unused: bool
    if_empty: bool
    def __init__(self, vhost: _Optional[str] = ..., name: _Optional[str] = ..., if_unused: bool = ..., if_empty: bool = ...) -> None: ...

class DeleteQueueResponse(_message.Message):
    __slots__ = ("dropped_count",)
    DROPPED_COUNT_FIELD_NUMBER: _ClassVar[int]
    dropped_count: int
    def __init__(self, dropped_count: _Optional[int] = ...) -> None: ...

class PurgeQueueRequest(_message.Message):
    __slots__ = ("vhost", "name")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    name: str
    def __init__(self, vhost: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class PurgeQueueResponse(_message.Message):
    __slots__ = ("dropped_count",)
    DROPPED_COUNT_FIELD_NUMBER: _ClassVar[int]
    dropped_count: int
    def __init__(self, dropped_count: _Optional[int] = ...) -> None: ...

class Binding(_message.Message):
    __slots__ = ("source", "destination_kind", "destination", "routing_key", "arguments")
    class ArgumentsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _message_pb2.Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_message_pb2.Value, _Mapping]] = ...) -> None: ...
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_KIND_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    ROUTING_KEY_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    source: str
    destination_kind: DestinationKind
    destination: str
    routing_key: str
    arguments: _containers.MessageMap[str, _message_pb2.Value]
    def __init__(self, source: _Optional[str] = ..., destination_kind: _Optional[_Union[DestinationKind, str]] = ..., destination: _Optional[str] = ..., routing_key: _Optional[str] = ..., arguments: _Optional[_Mapping[str, _message_pb2.Value]] = ...) -> None: ...

class ListBindingsRequest(_message.Message):
    __slots__ = ("vhost", "source", "destination", "page_size", "page_token")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    source: str
    destination: str
    page_size: int
    page_token: str
    def __init__(self, vhost: _Optional[str] = ..., source: _Optional[str] = ..., destination: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListBindingsResponse(_message.Message):
    __slots__ = ("bindings", "next_page_token")
    BINDINGS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    bindings: _containers.RepeatedCompositeFieldContainer[Binding]
    next_page_token: str
    def __init__(self, bindings: _Optional[_Iterable[_Union[Binding, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class BindRequest(_message.Message):
    __slots__ = ("vhost", "binding")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    BINDING_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    binding: Binding
    def __init__(self, vhost: _Optional[str] = ..., binding: _Optional[_Union[Binding, _Mapping]] = ...) -> None: ...

class BindResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UnbindRequest(_message.Message):
    __slots__ = ("vhost", "binding")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    BINDING_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    binding: Binding
    def __init__(self, vhost: _Optional[str] = ..., binding: _Optional[_Union[Binding, _Mapping]] = ...) -> None: ...

class UnbindResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Policy(_message.Message):
    __slots__ = ("name", "pattern", "apply_to", "priority", "definition")
    class DefinitionEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _message_pb2.Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_message_pb2.Value, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    APPLY_TO_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    name: str
    pattern: str
    apply_to: str
    priority: int
    definition: _containers.MessageMap[str, _message_pb2.Value]
    def __init__(self, name: _Optional[str] = ..., pattern: _Optional[str] = ..., apply_to: _Optional[str] = ..., priority: _Optional[int] = ..., definition: _Optional[_Mapping[str, _message_pb2.Value]] = ...) -> None: ...

class ListPoliciesRequest(_message.Message):
    __slots__ = ("vhost", "operator")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    operator: bool
    def __init__(self, vhost: _Optional[str] = ..., operator: bool = ...) -> None: ...

class ListPoliciesResponse(_message.Message):
    __slots__ = ("policies",)
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    policies: _containers.RepeatedCompositeFieldContainer[Policy]
    def __init__(self, policies: _Optional[_Iterable[_Union[Policy, _Mapping]]] = ...) -> None: ...

class SetPolicyRequest(_message.Message):
    __slots__ = ("vhost", "policy", "operator")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    policy: Policy
    operator: bool
    def __init__(self, vhost: _Optional[str] = ..., policy: _Optional[_Union[Policy, _Mapping]] = ..., operator: bool = ...) -> None: ...

class SetPolicyResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeletePolicyRequest(_message.Message):
    __slots__ = ("vhost", "name", "operator")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    name: str
    operator: bool
    def __init__(self, vhost: _Optional[str] = ..., name: _Optional[str] = ..., operator: bool = ...) -> None: ...

class DeletePolicyResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ExportDefinitionsRequest(_message.Message):
    __slots__ = ("vhost",)
    VHOST_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    def __init__(self, vhost: _Optional[str] = ...) -> None: ...

class ExportDefinitionsResponse(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: bytes
    def __init__(self, json: _Optional[bytes] = ...) -> None: ...

class ImportDefinitionsRequest(_message.Message):
    __slots__ = ("json", "vhost", "skip_unsupported", "shards")
    JSON_FIELD_NUMBER: _ClassVar[int]
    VHOST_FIELD_NUMBER: _ClassVar[int]
    SKIP_UNSUPPORTED_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    json: bytes
    vhost: str
    skip_unsupported: bool
    shards: int
    def __init__(self, json: _Optional[bytes] = ..., vhost: _Optional[str] = ..., skip_unsupported: bool = ..., shards: _Optional[int] = ...) -> None: ...

class ImportDefinitionsResponse(_message.Message):
    __slots__ = ("added", "skipped")
    class AddedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ADDED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    added: _containers.ScalarMap[str, int]
    skipped: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, added: _Optional[_Mapping[str, int]] = ..., skipped: _Optional[_Iterable[str]] = ...) -> None: ...
