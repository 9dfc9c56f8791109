from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class BackupRequest(_message.Message):
    __slots__ = ("directory",)
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    directory: str
    def __init__(self, directory: _Optional[str] = ...) -> None: ...

class BackupResponse(_message.Message):
    __slots__ = ("vhost_count", "bytes")
    VHOST_COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    vhost_count: int
    bytes: int
    def __init__(self, vhost_count: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class BeginBackupRequest(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    def __init__(self, request_id: _Optional[str] = ...) -> None: ...

class BeginBackupResponse(_message.Message):
    __slots__ = ("id", "bytes", "vhost_count", "data_id", "version")
    ID_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    VHOST_COUNT_FIELD_NUMBER: _ClassVar[int]
    DATA_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    id: str
    bytes: int
    vhost_count: int
    data_id: str
    version: str
    def __init__(self, id: _Optional[str] = ..., bytes: _Optional[int] = ..., vhost_count: _Optional[int] = ..., data_id: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class ReadBackupRequest(_message.Message):
    __slots__ = ("id", "offset")
    ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    id: str
    offset: int
    def __init__(self, id: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class ReadBackupResponse(_message.Message):
    __slots__ = ("content", "is_last", "sha256")
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    is_last: bool
    sha256: str
    def __init__(self, content: _Optional[bytes] = ..., is_last: bool = ..., sha256: _Optional[str] = ...) -> None: ...

class EndBackupRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class EndBackupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
