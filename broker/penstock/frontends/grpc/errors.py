"""The table from the broker's errors to gRPC's status codes, with google.rpc details.

Texts come from the errors themselves; a bug's text never leaves the process.
"""

from dataclasses import dataclass

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, PreconditionFailure, QuotaFailure, ResourceInfo
from google.rpc.status_pb2 import Status

from penstock.model.errors import (
    AccessRefusedError,
    BusyError,
    CorruptError,
    DiskFullError,
    FaultError,
    FileClosedError,
    InvalidArgumentError,
    LimitReachedError,
    LockedError,
    NotAuthenticatedError,
    NotFoundError,
    NotLedError,
    NotWrittenError,
    PreconditionFailedError,
    RefusedError,
    SingleActiveError,
    StoppedError,
    StorageError,
    TooLargeError,
)

DOMAIN = "penstock"

OK, INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED = 0, 3, 5, 7
RESOURCE_EXHAUSTED, FAILED_PRECONDITION, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, UNAUTHENTICATED = 8, 9, 12, 13, 14, 16
DATA_LOSS = 15

# Error -> code and reason. A subclass without a row of its own takes its parent's.
TABLE: dict[type[Exception], tuple[int, str]] = {
    NotFoundError: (NOT_FOUND, "NOT_FOUND"),
    AccessRefusedError: (PERMISSION_DENIED, "ACCESS_REFUSED"),
    NotAuthenticatedError: (UNAUTHENTICATED, "NOT_AUTHENTICATED"),
    PreconditionFailedError: (FAILED_PRECONDITION, "PRECONDITION_FAILED"),
    LockedError: (FAILED_PRECONDITION, "RESOURCE_LOCKED"),
    SingleActiveError: (FAILED_PRECONDITION, "RESOURCE_LOCKED"),
    InvalidArgumentError: (INVALID_ARGUMENT, "INVALID_ARGUMENT"),
    TooLargeError: (INVALID_ARGUMENT, "TOO_LARGE"),
    LimitReachedError: (RESOURCE_EXHAUSTED, "LIMIT_REACHED"),
    RefusedError: (FAILED_PRECONDITION, "REFUSED"),
    CorruptError: (DATA_LOSS, "CORRUPT"),
    DiskFullError: (RESOURCE_EXHAUSTED, "DISK_FULL"),
    StorageError: (UNAVAILABLE, "STORAGE_FAULT"),
    NotWrittenError: (UNAVAILABLE, "STORAGE_FAULT"),
    FileClosedError: (UNAVAILABLE, "STORAGE_FAULT"),
    StoppedError: (UNAVAILABLE, "STOPPED"),
    BusyError: (UNAVAILABLE, "BUSY"),
    NotLedError: (UNAVAILABLE, "NOT_LEADER"),
    FaultError: (UNAVAILABLE, "FAULT"),
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A status as gRPC sends it; `details` is a serialised google.rpc.Status."""

    code: int
    message: str
    details: bytes


def refusal_of(error: RefusedError | FaultError) -> Refusal:
    """Return the status of a refusal or a fault."""
    code, reason = next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)
    text = str(error)
    status = Status(code=code, message=text)
    for detail in _details(error, reason):
        packed = AnyMessage()
        packed.Pack(detail)
        status.details.append(packed)
    return Refusal(code, text, status.SerializeToString())


def refusal_of_a_bug() -> Refusal:
    """Return a status that says no more than that the client did not cause it."""
    return Refusal(INTERNAL, "internal error of the broker; see its log", b"")


def unimplemented(method: str) -> Refusal:
    return Refusal(UNIMPLEMENTED, f"method {method!r} not found; list the methods with server reflection", b"")


def _details(error: RefusedError | FaultError, reason: str) -> list[Message]:
    thing = error.thing
    info = ErrorInfo(reason=reason, domain=DOMAIN, metadata={"kind": thing.kind, "name": thing.name})
    if thing.vhost is not None:
        info.metadata["vhost"] = thing.vhost
    resource = ResourceInfo(resource_type=thing.kind, resource_name=thing.name, description=error.rule)
    details: list[Message] = [info, resource]
    if isinstance(error, PreconditionFailedError):
        failure = PreconditionFailure()
        failure.violations.add(type=error.field or reason, subject=str(thing), description=str(error))
        details.append(failure)
        info.metadata.update({"field": error.field, "wanted": error.wanted, "found": error.found})
    elif isinstance(error, InvalidArgumentError | TooLargeError):
        request = BadRequest()
        field = error.field if isinstance(error, InvalidArgumentError) else thing.kind
        request.field_violations.add(field=field, description=str(error))
        details.append(request)
    elif isinstance(error, NotLedError):
        info.metadata.update({"leader": error.leader, "grpc": error.grpc, "amqp": error.amqp})
    elif isinstance(error, LimitReachedError):
        quota = QuotaFailure()
        quota.violations.add(subject=str(thing), description=str(error))
        details.append(quota)
    return details
