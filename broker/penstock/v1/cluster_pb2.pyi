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
    __slots__ = ("broker", "id", "in_sync", "lag_bytes", "differing_records", "differing_position")
    BROKER_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    DIFFERING_RECORDS_FIELD_NUMBER: _ClassVar[int]
    DIFFERING_POSITION_FIELD_NUMBER: _ClassVar[int]
    broker: str
    id: str
    in_sync: bool
    lag_bytes: int
    differing_records: int
    differing_position: int
    def __init__(self, broker: _Optional[str] = ..., id: _Optional[str] = ..., in_sync: bool = ..., lag_bytes: _Optional[int] = ..., differing_records: _Optional[int] = ..., differing_position: _Optional[int] = ...) -> None: ...

class ClusterRecovery(_message.Message):
    __slots__ = ("epoch", "broker", "id", "end_bytes", "by", "at_unix_ms")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    END_BYTES_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    AT_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    broker: str
    id: str
    end_bytes: int
    by: str
    at_unix_ms: int
    def __init__(self, epoch: _Optional[int] = ..., broker: _Optional[str] = ..., id: _Optional[str] = ..., end_bytes: _Optional[int] = ..., by: _Optional[str] = ..., at_unix_ms: _Optional[int] = ...) -> None: ...

class ClusterShard(_message.Message):
    __slots__ = ("name", "vhost", "leader", "epoch", "led", "min_in_sync", "end_bytes", "replicas", "unknown", "recoveries", "placed")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VHOST_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LED_FIELD_NUMBER: _ClassVar[int]
    MIN_IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    END_BYTES_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    RECOVERIES_FIELD_NUMBER: _ClassVar[int]
    PLACED_FIELD_NUMBER: _ClassVar[int]
    name: str
    vhost: str
    leader: str
    epoch: int
    led: bool
    min_in_sync: int
    end_bytes: int
    replicas: _containers.RepeatedCompositeFieldContainer[ClusterReplica]
    unknown: bool
    recoveries: _containers.RepeatedCompositeFieldContainer[ClusterRecovery]
    placed: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., vhost: _Optional[str] = ..., leader: _Optional[str] = ..., epoch: _Optional[int] = ..., led: bool = ..., min_in_sync: _Optional[int] = ..., end_bytes: _Optional[int] = ..., replicas: _Optional[_Iterable[_Union[ClusterReplica, _Mapping]]] = ..., unknown: bool = ..., recoveries: _Optional[_Iterable[_Union[ClusterRecovery, _Mapping]]] = ..., placed: _Optional[_Iterable[str]] = ...) -> None: ...

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

class MoveReplicaRequest(_message.Message):
    __slots__ = ("vhost", "source", "to")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    source: str
    to: str
    def __init__(self, vhost: _Optional[str] = ..., source: _Optional[str] = ..., to: _Optional[str] = ...) -> None: ...

class MoveReplicaResponse(_message.Message):
    __slots__ = ("shard", "placed", "changed")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    PLACED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    shard: str
    placed: _containers.RepeatedScalarFieldContainer[str]
    changed: bool
    def __init__(self, shard: _Optional[str] = ..., placed: _Optional[_Iterable[str]] = ..., changed: bool = ...) -> None: ...

class AddBrokerRequest(_message.Message):
    __slots__ = ("broker", "peers")
    BROKER_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    broker: str
    peers: str
    def __init__(self, broker: _Optional[str] = ..., peers: _Optional[str] = ...) -> None: ...

class AddBrokerResponse(_message.Message):
    __slots__ = ("added",)
    ADDED_FIELD_NUMBER: _ClassVar[int]
    added: bool
    def __init__(self, added: bool = ...) -> None: ...

class RemoveBrokerRequest(_message.Message):
    __slots__ = ("broker",)
    BROKER_FIELD_NUMBER: _ClassVar[int]
    broker: str
    def __init__(self, broker: _Optional[str] = ...) -> None: ...

class RemoveBrokerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

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

class RecoverShardRequest(_message.Message):
    __slots__ = ("vhost", "broker", "accept_loss", "number")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_LOSS_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    broker: str
    accept_loss: bool
    number: int
    def __init__(self, vhost: _Optional[str] = ..., broker: _Optional[str] = ..., accept_loss: bool = ..., number: _Optional[int] = ...) -> None: ...

class RemainingReplica(_message.Message):
    __slots__ = ("broker", "answered", "alive", "id", "open", "in_sync", "epoch", "end_bytes", "committed_bytes", "halted")
    BROKER_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_BYTES_FIELD_NUMBER: _ClassVar[int]
    HALTED_FIELD_NUMBER: _ClassVar[int]
    broker: str
    answered: bool
    alive: bool
    id: str
    open: bool
    in_sync: bool
    epoch: int
    end_bytes: int
    committed_bytes: int
    halted: str
    def __init__(self, broker: _Optional[str] = ..., answered: bool = ..., alive: bool = ..., id: _Optional[str] = ..., open: bool = ..., in_sync: bool = ..., epoch: _Optional[int] = ..., end_bytes: _Optional[int] = ..., committed_bytes: _Optional[int] = ..., halted: _Optional[str] = ...) -> None: ...

class RecoverShardResponse(_message.Message):
    __slots__ = ("shard", "replicas", "most", "problem", "recovered", "epoch", "shard_count")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    RECOVERED_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SHARD_COUNT_FIELD_NUMBER: _ClassVar[int]
    shard: str
    replicas: _containers.RepeatedCompositeFieldContainer[RemainingReplica]
    most: str
    problem: str
    recovered: bool
    epoch: int
    shard_count: int
    def __init__(self, shard: _Optional[str] = ..., replicas: _Optional[_Iterable[_Union[RemainingReplica, _Mapping]]] = ..., most: _Optional[str] = ..., problem: _Optional[str] = ..., recovered: bool = ..., epoch: _Optional[int] = ..., shard_count: _Optional[int] = ...) -> None: ...
