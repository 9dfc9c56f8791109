from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClusterBroker(_message.Message):
    __slots__ = ("name", "peers", "grpc", "amqp", "alive", "connected", "draining")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    GRPC_FIELD_NUMBER: _ClassVar[int]
    AMQP_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    name: str
    peers: str
    grpc: str
    amqp: str
    alive: bool
    connected: bool
    draining: bool
    def __init__(self, name: _Optional[str] = ..., peers: _Optional[str] = ..., grpc: _Optional[str] = ..., amqp: _Optional[str] = ..., alive: bool = ..., connected: bool = ..., draining: bool = ...) -> None: ...

class ClusterReplica(_message.Message):
    __slots__ = ("broker", "id", "in_sync", "lag_bytes")
    BROKER_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    broker: str
    id: str
    in_sync: bool
    lag_bytes: int
    def __init__(self, broker: _Optional[str] = ..., id: _Optional[str] = ..., in_sync: bool = ..., lag_bytes: _Optional[int] = ...) -> None: ...

class ClusterShard(_message.Message):
    __slots__ = ("name", "vhost", "leader", "epoch", "led", "min_in_sync", "end_bytes", "replicas", "unknown")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VHOST_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LED_FIELD_NUMBER: _ClassVar[int]
    MIN_IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    END_BYTES_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    name: str
    vhost: str
    leader: str
    epoch: int
    led: bool
    min_in_sync: int
    end_bytes: int
    replicas: _containers.RepeatedCompositeFieldContainer[ClusterReplica]
    unknown: bool
    def __init__(self, name: _Optional[str] = ..., vhost: _Optional[str] = ..., leader: _Optional[str] = ..., epoch: _Optional[int] = ..., led: bool = ..., min_in_sync: _Optional[int] = ..., end_bytes: _Optional[int] = ..., replicas: _Optional[_Iterable[_Union[ClusterReplica, _Mapping]]] = ..., unknown: bool = ...) -> None: ...

class GetClusterStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetClusterStatusResponse(_message.Message):
    __slots__ = ("cluster", "broker", "brokers", "shards", "coordinator_fault")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_FAULT_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    broker: str
    brokers: _containers.RepeatedCompositeFieldContainer[ClusterBroker]
    shards: _containers.RepeatedCompositeFieldContainer[ClusterShard]
    coordinator_fault: str
    def __init__(self, cluster: _Optional[str] = ..., broker: _Optional[str] = ..., brokers: _Optional[_Iterable[_Union[ClusterBroker, _Mapping]]] = ..., shards: _Optional[_Iterable[_Union[ClusterShard, _Mapping]]] = ..., coordinator_fault: _Optional[str] = ...) -> None: ...

class MoveLeaderRequest(_message.Message):
    __slots__ = ("vhost", "broker")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    broker: str
    def __init__(self, vhost: _Optional[str] = ..., broker: _Optional[str] = ...) -> None: ...

class MoveLeaderResponse(_message.Message):
    __slots__ = ("shard", "epoch", "moved")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    shard: str
    epoch: int
    moved: bool
    def __init__(self, shard: _Optional[str] = ..., epoch: _Optional[int] = ..., moved: bool = ...) -> None: ...

class SetDrainingRequest(_message.Message):
    __slots__ = ("broker", "draining")
    BROKER_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    broker: str
    draining: bool
    def __init__(self, broker: _Optional[str] = ..., draining: bool = ...) -> None: ...

class SetDrainingResponse(_message.Message):
    __slots__ = ("changed",)
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    changed: bool
    def __init__(self, changed: bool = ...) -> None: ...
