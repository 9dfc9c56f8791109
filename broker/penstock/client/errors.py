"""Errors of the client: one class for each kind of refusal of the broker.

A gRPC code chooses the class; the google.rpc details beside it give the reason, the thing and the rule. The broker's
words are kept as they are. This module knows no transport.
"""

from dataclasses import dataclass, field

from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped, unused-ignore]

__all__ = [
    "AccessRefusedError",
    "AlreadyExistsError",
    "BlockedError",
    "BrokerError",
    "CancelledError",
    "ClosedError",
    "ConnectionLostError",
    "DeadlineError",
    "Detail",
    "InvalidArgumentError",
    "InvalidUriError",
    "LockedError",
    "NotAuthenticatedError",
    "NotFoundError",
    "NotSupportedError",
    "PenstockError",
    "PreconditionFailedError",
    "RefusedError",
    "ReturnedError",
    "TooLargeError",
    "from_status",
]

RETURNED = -1
CANCELLED, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND, ALREADY_EXISTS = 1, 2, 3, 4, 5, 6
PERMISSION_DENIED, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, ABORTED, OUT_OF_RANGE = 7, 8, 9, 10, 11
UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS, UNAUTHENTICATED = 12, 13, 14, 15, 16


@dataclass(frozen=True, slots=True)
class Detail:
    """Details that the broker sent with its message; empty if it sent none."""

    reason: str = ""
    resource_type: str = ""
    resource_name: str = ""
    violations: tuple[tuple[str, str], ...] = ()
    data: dict[str, str] = field(default_factory=dict)


class PenstockError(Exception):
    """The root of all that this client raises. `code` is the gRPC code behind it, 0 when there was none."""

    def __init__(self, message: str, *, code: int = 0, detail: Detail | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.detail = detail or Detail()


class InvalidUriError(PenstockError, ValueError):
    """The URI cannot be read."""


class ClosedError(PenstockError):
    """The connection was closed by this side."""


class RefusedError(PenstockError):
    """The broker refused: what was asked cannot be, and asking again will not help."""


class InvalidArgumentError(RefusedError):
    """A name, an argument or a value that the broker does not take."""


class NotFoundError(RefusedError):
    """No such vhost, exchange, queue, user, or method."""


class AlreadyExistsError(RefusedError):
    """It is there already."""


class AccessRefusedError(RefusedError):
    """The user lacks the permission, or the name is reserved."""


class NotAuthenticatedError(RefusedError):
    """The user does not exist or the password is wrong."""


class PreconditionFailedError(RefusedError):
    """The thing is there, but not as asked: a field differs, a queue is not empty or is in use."""


class LockedError(RefusedError):
    """The queue is exclusive to another connection."""


class TooLargeError(RefusedError):
    """The message is larger than the broker takes."""


class NotSupportedError(RefusedError):
    """This broker does not do that."""


class ReturnedError(RefusedError):
    """A mandatory message reached no queue."""


class BlockedError(PenstockError):
    """The broker takes nothing more for now: a disk is full or a limit is reached."""


class BrokerError(PenstockError):
    """Something went wrong inside the broker."""


class CancelledError(PenstockError):
    """The broker ended this consumer, or the call was cancelled."""


class DeadlineError(PenstockError, TimeoutError):
    """No answer in time: what was asked may have happened."""


class ConnectionLostError(PenstockError, ConnectionError):
    """The broker cannot be reached, or the connection broke before the answer."""


_CLASSES: dict[int, type[PenstockError]] = {
    RETURNED: ReturnedError,
    CANCELLED: CancelledError,
    INVALID_ARGUMENT: InvalidArgumentError,
    DEADLINE_EXCEEDED: DeadlineError,
    NOT_FOUND: NotFoundError,
    ALREADY_EXISTS: AlreadyExistsError,
    PERMISSION_DENIED: AccessRefusedError,
    RESOURCE_EXHAUSTED: BlockedError,
    FAILED_PRECONDITION: PreconditionFailedError,
    OUT_OF_RANGE: InvalidArgumentError,
    UNIMPLEMENTED: NotSupportedError,
    UNAVAILABLE: ConnectionLostError,
    UNAUTHENTICATED: NotAuthenticatedError,
}

# Reasons that say more than their code does.
_REASONS: dict[str, type[PenstockError]] = {
    "LOCKED": LockedError,
    "RESOURCE_LOCKED": LockedError,
    "TOO_LARGE": TooLargeError,
    "MESSAGE_TOO_LARGE": TooLargeError,
}

# A rejection on a publish stream has a code and a sentence, no details.
_TOO_LARGE_WORDS = ("too large", "larger than")


# What a publisher refuses before it takes a message: it goes on with the next one.
MESSAGE_REFUSALS = (INVALID_ARGUMENT, RESOURCE_EXHAUSTED)


def from_status(code: int, message: str, details: bytes = b"") -> PenstockError:
    """Return the error for a gRPC status; `details` is a serialised google.rpc.Status, or empty."""
    detail = _detail(details)
    kind = _REASONS.get(detail.reason) or _CLASSES.get(code, BrokerError)
    if kind in (BlockedError, InvalidArgumentError) and any(words in message for words in _TOO_LARGE_WORDS):
        kind = TooLargeError
    if kind is ReturnedError:
        message = f"a mandatory message reached no queue ({message}); bind a queue or publish it without mandatory"
    return kind(message or f"the broker answered with code {code} and no message", code=code, detail=detail)


def _detail(details: bytes) -> Detail:
    if not details:
        return Detail()
    try:
        status = status_pb2.Status.FromString(details)
        return _read(status)
    except DecodeError:
        # The message itself came intact; unreadable details must not hide it.
        return Detail()


def _read(status: status_pb2.Status) -> Detail:
    reason, resource_type, resource_name = "", "", ""
    violations: list[tuple[str, str]] = []
    data: dict[str, str] = {}
    info, resource = error_details_pb2.ErrorInfo(), error_details_pb2.ResourceInfo()
    request, precondition = error_details_pb2.BadRequest(), error_details_pb2.PreconditionFailure()
    for packed in status.details:
        if packed.Unpack(info):
            reason, data = info.reason, dict(info.metadata)
        elif packed.Unpack(resource):
            resource_type, resource_name = resource.resource_type, resource.resource_name
        elif packed.Unpack(request):
            violations += [(violation.field, violation.description) for violation in request.field_violations]
        elif packed.Unpack(precondition):
            violations += [(violation.subject, violation.description) for violation in precondition.violations]
    return Detail(reason, resource_type, resource_name, tuple(violations), data)
