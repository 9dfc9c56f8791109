from penstock.v1 import messaging_pb2 as _messaging_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StageTarget(_message.Message):
    __slots__ = ("vhost", "stage", "stream", "exchange", "routing_key")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    ROUTING_KEY_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    stage: str
    stream: str
    exchange: str
    routing_key: str
    def __init__(self, vhost: _Optional[str] = ..., stage: _Optional[str] = ..., stream: _Optional[str] = ..., exchange: _Optional[str] = ..., routing_key: _Optional[str] = ...) -> None: ...

class StageRequest(_message.Message):
    __slots__ = ("target", "batch", "attempt", "rows")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    target: StageTarget
    batch: int
    attempt: int
    rows: _messaging_pb2.PublishBatch
    def __init__(self, target: _Optional[_Union[StageTarget, _Mapping]] = ..., batch: _Optional[int] = ..., attempt: _Optional[int] = ..., rows: _Optional[_Union[_messaging_pb2.PublishBatch, _Mapping]] = ...) -> None: ...

class StageResponse(_message.Message):
    __slots__ = ("attempt", "count")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    count: int
    def __init__(self, attempt: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class StagedAttempt(_message.Message):
    __slots__ = ("attempt", "count")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    count: int
    def __init__(self, attempt: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class PublishStagedRequest(_message.Message):
    __slots__ = ("target", "batch", "attempts")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    target: StageTarget
    batch: int
    attempts: _containers.RepeatedCompositeFieldContainer[StagedAttempt]
    def __init__(self, target: _Optional[_Union[StageTarget, _Mapping]] = ..., batch: _Optional[int] = ..., attempts: _Optional[_Iterable[_Union[StagedAttempt, _Mapping]]] = ...) -> None: ...

class PublishStagedResponse(_message.Message):
    __slots__ = ("was_decided", "stored", "unroutable")
    WAS_DECIDED_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    UNROUTABLE_FIELD_NUMBER: _ClassVar[int]
    was_decided: bool
    stored: int
    unroutable: int
    def __init__(self, was_decided: bool = ..., stored: _Optional[int] = ..., unroutable: _Optional[int] = ...) -> None: ...

class DiscardStagedRequest(_message.Message):
    __slots__ = ("target", "batch", "attempts")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    target: StageTarget
    batch: int
    attempts: _containers.RepeatedCompositeFieldContainer[StagedAttempt]
    def __init__(self, target: _Optional[_Union[StageTarget, _Mapping]] = ..., batch: _Optional[int] = ..., attempts: _Optional[_Iterable[_Union[StagedAttempt, _Mapping]]] = ...) -> None: ...

class DiscardStagedResponse(_message.Message):
    __slots__ = ("dropped",)
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    dropped: int
    def __init__(self, dropped: _Optional[int] = ...) -> None: ...

class ListStagesRequest(_message.Message):
    __slots__ = ("vhost",)
    VHOST_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    def __init__(self, vhost: _Optional[str] = ...) -> None: ...

class ListStagesResponse(_message.Message):
    __slots__ = ("stages",)
    STAGES_FIELD_NUMBER: _ClassVar[int]
    stages: _containers.RepeatedCompositeFieldContainer[StageInfo]
    def __init__(self, stages: _Optional[_Iterable[_Union[StageInfo, _Mapping]]] = ...) -> None: ...

class StageInfo(_message.Message):
    __slots__ = ("name", "exchange", "routing_key", "row_count", "bytes", "last_batch", "copying", "last_staged_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    ROUTING_KEY_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LAST_BATCH_FIELD_NUMBER: _ClassVar[int]
    COPYING_FIELD_NUMBER: _ClassVar[int]
    LAST_STAGED_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    exchange: str
    routing_key: str
    row_count: int
    bytes: int
    last_batch: int
    copying: bool
    last_staged_ms: int
    def __init__(self, name: _Optional[str] = ..., exchange: _Optional[str] = ..., routing_key: _Optional[str] = ..., row_count: _Optional[int] = ..., bytes: _Optional[int] = ..., last_batch: _Optional[int] = ..., copying: bool = ..., last_staged_ms: _Optional[int] = ...) -> None: ...

class DeleteStageRequest(_message.Message):
    __slots__ = ("vhost", "name", "ended")
    VHOST_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    vhost: str
    name: str
    ended: bool
    def __init__(self, vhost: _Optional[str] = ..., name: _Optional[str] = ..., ended: bool = ...) -> None: ...

class DeleteStageResponse(_message.Message):
    __slots__ = ("dropped_count",)
    DROPPED_COUNT_FIELD_NUMBER: _ClassVar[int]
    dropped_count: int
    def __init__(self, dropped_count: _Optional[int] = ...) -> None: ...
