from penstock.v1 import message_pb2 as _message_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Durability(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DURABILITY_UNSPECIFIED: _ClassVar[Durability]
    DURABILITY_OS: _ClassVar[Durability]
    DURABILITY_DISK: _ClassVar[Durability]
    DURABILITY_REPLICATED: _ClassVar[Durability]

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_ACK: _ClassVar[Outcome]
    OUTCOME_REJECT: _ClassVar[Outcome]
    OUTCOME_REQUEUE: _ClassVar[Outcome]
DURABILITY_UNSPECIFIED: Durability
DURABILITY_OS: Durability
DURABILITY_DISK: Durability
DURABILITY_REPLICATED: Durability
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_ACK: Outcome
OUTCOME_REJECT: Outcome
OUTCOME_REQUEUE: Outcome

class PublishRequest(_message.Message):
    __slots__ = ("open", "batch")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    open: PublishOpen
    batch: PublishBatch
    def __init__(self, open: _Optional[_Union[PublishOpen, _Mapping]] = ..., batch: _Optional[_Union[PublishBatch, _Mapping]] = ...) -> None: ...

class PublishOpen(_message.Message):
    __slots__ = ("vhost", "durability", "producer")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    durability: Durability
    producer: str
    def __init__(self, vhost: _Optional[str] = ..., durability: _Optional[_Union[Durability, str]] = ..., producer: _Optional[str] = ...) -> None: ...

class PublishBatch(_message.Message):
    __slots__ = ("exchange", "routing_key", "mandatory", "messages", "producer_sequence")
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    ROUTING_KEY_FIELD_NUMBER: _ClassVar[int]
    MANDATORY_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    exchange: str
    routing_key: str
    mandatory: bool
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    producer_sequence: int
    def __init__(self, exchange: _Optional[str] = ..., routing_key: _Optional[str] = ..., mandatory: bool = ..., messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., producer_sequence: _Optional[int] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("body", "exchange", "routing_key", "properties", "key")
    BODY_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    ROUTING_KEY_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    exchange: str
    routing_key: str
    properties: _message_pb2.Properties
    key: bytes
    def __init__(self, body: _Optional[bytes] = ..., exchange: _Optional[str] = ..., routing_key: _Optional[str] = ..., properties: _Optional[_Union[_message_pb2.Properties, _Mapping]] = ..., key: _Optional[bytes] = ...) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ("confirmed", "returned", "rejected")
    CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    RETURNED_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    confirmed: _containers.RepeatedCompositeFieldContainer[_message_pb2.Range]
    returned: _containers.RepeatedCompositeFieldContainer[Returned]
    rejected: _containers.RepeatedCompositeFieldContainer[Rejected]
    def __init__(self, confirmed: _Optional[_Iterable[_Union[_message_pb2.Range, _Mapping]]] = ..., returned: _Optional[_Iterable[_Union[Returned, _Mapping]]] = ..., rejected: _Optional[_Iterable[_Union[Rejected, _Mapping]]] = ...) -> None: ...

class Returned(_message.Message):
    __slots__ = ("number", "reason")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    number: int
    reason: str
    def __init__(self, number: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Rejected(_message.Message):
    __slots__ = ("first", "last", "code", "reason")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    code: int
    reason: str
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ..., code: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class ConsumeRequest(_message.Message):
    __slots__ = ("open", "settle", "flow")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    SETTLE_FIELD_NUMBER: _ClassVar[int]
    FLOW_FIELD_NUMBER: _ClassVar[int]
    open: ConsumeOpen
    settle: Settlement
    flow: Flow
    def __init__(self, open: _Optional[_Union[ConsumeOpen, _Mapping]] = ..., settle: _Optional[_Union[Settlement, _Mapping]] = ..., flow: _Optional[_Union[Flow, _Mapping]] = ...) -> None: ...

class ConsumeOpen(_message.Message):
    __slots__ = ("vhost", "queue", "consumer_tag", "prefetch", "auto_ack", "exclusive", "priority", "consumer_timeout_ms")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_TAG_FIELD_NUMBER: _ClassVar[int]
    PREFETCH_FIELD_NUMBER: _ClassVar[int]
    AUTO_ACK_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    queue: str
    consumer_tag: str
    prefetch: int
    auto_ack: bool
    exclusive: bool
    priority: int
    consumer_timeout_ms: int
    def __init__(self, vhost: _Optional[str] = ..., queue: _Optional[str] = ..., consumer_tag: _Optional[str] = ..., prefetch: _Optional[int] = ..., auto_ack: bool = ..., exclusive: bool = ..., priority: _Optional[int] = ..., consumer_timeout_ms: _Optional[int] = ...) -> None: ...

class Settlement(_message.Message):
    __slots__ = ("ranges", "outcome", "delay_ms")
    RANGES_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    ranges: _containers.RepeatedCompositeFieldContainer[_message_pb2.Range]
    outcome: Outcome
    delay_ms: int
    def __init__(self, ranges: _Optional[_Iterable[_Union[_message_pb2.Range, _Mapping]]] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., delay_ms: _Optional[int] = ...) -> None: ...

class Flow(_message.Message):
    __slots__ = ("prefetch",)
    PREFETCH_FIELD_NUMBER: _ClassVar[int]
    prefetch: int
    def __init__(self, prefetch: _Optional[int] = ...) -> None: ...

class ConsumeResponse(_message.Message):
    __slots__ = ("opened", "deliveries", "cancelled")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    opened: ConsumeOpened
    deliveries: Deliveries
    cancelled: ConsumeCancelled
    def __init__(self, opened: _Optional[_Union[ConsumeOpened, _Mapping]] = ..., deliveries: _Optional[_Union[Deliveries, _Mapping]] = ..., cancelled: _Optional[_Union[ConsumeCancelled, _Mapping]] = ...) -> None: ...

class ConsumeOpened(_message.Message):
    __slots__ = ("consumer_tag",)
    CONSUMER_TAG_FIELD_NUMBER: _ClassVar[int]
    consumer_tag: str
    def __init__(self, consumer_tag: _Optional[str] = ...) -> None: ...

class Deliveries(_message.Message):
    __slots__ = ("deliveries",)
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[Delivery]
    def __init__(self, deliveries: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("sequence", "body", "exchange", "routing_key", "properties", "redelivered", "delivery_count", "stored_at_ms", "key")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    ROUTING_KEY_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    REDELIVERED_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    STORED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    body: bytes
    exchange: str
    routing_key: str
    properties: _message_pb2.Properties
    redelivered: bool
    delivery_count: int
    stored_at_ms: int
    key: bytes
    def __init__(self, sequence: _Optional[int] = ..., body: _Optional[bytes] = ..., exchange: _Optional[str] = ..., routing_key: _Optional[str] = ..., properties: _Optional[_Union[_message_pb2.Properties, _Mapping]] = ..., redelivered: bool = ..., delivery_count: _Optional[int] = ..., stored_at_ms: _Optional[int] = ..., key: _Optional[bytes] = ...) -> None: ...

class ConsumeCancelled(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("vhost", "queue", "count_max", "auto_ack")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    COUNT_MAX_FIELD_NUMBER: _ClassVar[int]
    AUTO_ACK_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    queue: str
    count_max: int
    auto_ack: bool
    def __init__(self, vhost: _Optional[str] = ..., queue: _Optional[str] = ..., count_max: _Optional[int] = ..., auto_ack: bool = ...) -> None: ...

class GetResponse(_message.Message):
    __slots__ = ("deliveries", "ready_count")
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    READY_COUNT_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[Delivery]
    ready_count: int
    def __init__(self, deliveries: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ..., ready_count: _Optional[int] = ...) -> None: ...

class PeekRequest(_message.Message):
    __slots__ = ("vhost", "queue", "count_max", "position", "routing_key", "header", "header_value")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    COUNT_MAX_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    ROUTING_KEY_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    HEADER_VALUE_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    queue: str
    count_max: int
    position: int
    routing_key: str
    header: str
    header_value: str
    def __init__(self, vhost: _Optional[str] = ..., queue: _Optional[str] = ..., count_max: _Optional[int] = ..., position: _Optional[int] = ..., routing_key: _Optional[str] = ..., header: _Optional[str] = ..., header_value: _Optional[str] = ...) -> None: ...

class PeekResponse(_message.Message):
    __slots__ = ("deliveries", "next_position")
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_POSITION_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[Delivery]
    next_position: int
    def __init__(self, deliveries: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ..., next_position: _Optional[int] = ...) -> None: ...

class SettleRequest(_message.Message):
    __slots__ = ("vhost", "queue", "settlement")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    SETTLEMENT_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    queue: str
    settlement: Settlement
    def __init__(self, vhost: _Optional[str] = ..., queue: _Optional[str] = ..., settlement: _Optional[_Union[Settlement, _Mapping]] = ...) -> None: ...

class SettleResponse(_message.Message):
    __slots__ = ("settled_count",)
    SETTLED_COUNT_FIELD_NUMBER: _ClassVar[int]
    settled_count: int
    def __init__(self, settled_count: _Optional[int] = ...) -> None: ...

class ReserveLeaseRequest(_message.Message):
    __slots__ = ("vhost", "queue", "owner", "lease", "messages_max", "bytes_max")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_MAX_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    queue: str
    owner: str
    lease: int
    messages_max: int
    bytes_max: int
    def __init__(self, vhost: _Optional[str] = ..., queue: _Optional[str] = ..., owner: _Optional[str] = ..., lease: _Optional[int] = ..., messages_max: _Optional[int] = ..., bytes_max: _Optional[int] = ...) -> None: ...

class ReserveLeaseResponse(_message.Message):
    __slots__ = ("lease", "is_new", "ready_count")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    IS_NEW_FIELD_NUMBER: _ClassVar[int]
    READY_COUNT_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    is_new: bool
    ready_count: int
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., is_new: bool = ..., ready_count: _Optional[int] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("lease", "message_count", "bytes", "reserved_at_ms")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    RESERVED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    lease: int
    message_count: int
    bytes: int
    reserved_at_ms: int
    def __init__(self, lease: _Optional[int] = ..., message_count: _Optional[int] = ..., bytes: _Optional[int] = ..., reserved_at_ms: _Optional[int] = ...) -> None: ...

class AckLeasesRequest(_message.Message):
    __slots__ = ("vhost", "queue", "owner", "up_to")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    UP_TO_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    queue: str
    owner: str
    up_to: int
    def __init__(self, vhost: _Optional[str] = ..., queue: _Optional[str] = ..., owner: _Optional[str] = ..., up_to: _Optional[int] = ...) -> None: ...

class AckLeasesResponse(_message.Message):
    __slots__ = ("settled_count",)
    SETTLED_COUNT_FIELD_NUMBER: _ClassVar[int]
    settled_count: int
    def __init__(self, settled_count: _Optional[int] = ...) -> None: ...

class ReleaseLeasesRequest(_message.Message):
    __slots__ = ("vhost", "queue", "owner")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    queue: str
    owner: str
    def __init__(self, vhost: _Optional[str] = ..., queue: _Optional[str] = ..., owner: _Optional[str] = ..., **kwargs) -> None: ...

class ReleaseLeasesResponse(_message.Message):
    __slots__ = ("released_count",)
    RELEASED_COUNT_FIELD_NUMBER: _ClassVar[int]
    released_count: int
    def __init__(self, released_count: _Optional[int] = ...) -> None: ...

class ListLeasesRequest(_message.Message):
    __slots__ = ("vhost", "queue", "owner")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    queue: str
    owner: str
    def __init__(self, vhost: _Optional[str] = ..., queue: _Optional[str] = ..., owner: _Optional[str] = ...) -> None: ...

class ListLeasesResponse(_message.Message):
    __slots__ = ("owners", "ready_count")
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    READY_COUNT_FIELD_NUMBER: _ClassVar[int]
    owners: _containers.RepeatedCompositeFieldContainer[LeaseOwner]
    ready_count: int
    def __init__(self, owners: _Optional[_Iterable[_Union[LeaseOwner, _Mapping]]] = ..., ready_count: _Optional[int] = ...) -> None: ...

class LeaseOwner(_message.Message):
    __slots__ = ("owner", "acked", "leases")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    owner: str
    acked: int
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    def __init__(self, owner: _Optional[str] = ..., acked: _Optional[int] = ..., leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ...) -> None: ...
