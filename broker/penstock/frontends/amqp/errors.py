"""The table from the broker's errors to reply codes of AMQP 0-9-1, with RabbitMQ's texts: clients match on both.

A bug's text never leaves the process.
"""

from dataclasses import dataclass

from penstock.model.errors import (
    AccessRefusedError,
    BusyError,
    CorruptError,
    DiskFullError,
    FaultError,
    InvalidArgumentError,
    LimitReachedError,
    LockedError,
    NotAuthenticatedError,
    NotFoundError,
    NotLedError,
    PreconditionFailedError,
    RefusedError,
    SingleActiveError,
    StoppedError,
    Thing,
    TooLargeError,
)

CONNECTION_FORCED, ACCESS_REFUSED, NOT_FOUND, RESOURCE_LOCKED = 320, 403, 404, 405
PRECONDITION_FAILED, COMMAND_INVALID, RESOURCE_ERROR = 406, 503, 506
NOT_ALLOWED, NOT_IMPLEMENTED, INTERNAL_ERROR = 530, 540, 541


class UnknownTypeError(InvalidArgumentError):
    """No exchange has that type, whatever its name and whoever asks for it."""

    def __init__(self, thing: Thing, kind: str) -> None:
        super().__init__(thing, f"has an unknown type '{kind}'", "use another type", field="type")
        self.kind = kind

    def __str__(self) -> str:
        return f"unknown exchange type '{self.kind}'"


class GetFromStreamError(InvalidArgumentError):
    """Messages of a stream cannot be got singly."""

    def __str__(self) -> str:
        return f"basic.get not supported by stream queues {self.thing}"


# Error -> kind, as the listener knows it, and reply code. A subclass without a row of its own takes its parent's.
TABLE: dict[type[Exception], tuple[str, int]] = {
    NotFoundError: ("not_found", NOT_FOUND),
    AccessRefusedError: ("access_refused", ACCESS_REFUSED),
    NotAuthenticatedError: ("unauthenticated", ACCESS_REFUSED),
    PreconditionFailedError: ("precondition_failed", PRECONDITION_FAILED),
    LockedError: ("precondition_failed", RESOURCE_LOCKED),
    GetFromStreamError: ("unsupported", NOT_IMPLEMENTED),
    UnknownTypeError: ("invalid_argument", COMMAND_INVALID),
    InvalidArgumentError: ("invalid_argument", PRECONDITION_FAILED),
    TooLargeError: ("invalid_argument", PRECONDITION_FAILED),
    LimitReachedError: ("limit_reached", PRECONDITION_FAILED),
    RefusedError: ("precondition_failed", PRECONDITION_FAILED),
    CorruptError: ("corrupt", INTERNAL_ERROR),
    DiskFullError: ("limit_reached", RESOURCE_ERROR),
    StoppedError: ("unavailable", CONNECTION_FORCED),
    BusyError: ("unavailable", RESOURCE_ERROR),
    NotLedError: ("led_elsewhere", CONNECTION_FORCED),
    FaultError: ("unavailable", INTERNAL_ERROR),
}

_ARGUMENTS, _TOO_MANY_QUEUES = "arguments.", "would be "

# Errors about a field whose code is not that of their class.
_CODES: dict[tuple[type[Exception], str], int] = {
    (PreconditionFailedError, "connections_max"): NOT_ALLOWED,
    (PreconditionFailedError, "exclusive"): RESOURCE_LOCKED,
}

# Rules that no user may break, and what RabbitMQ says of them.
_ACCESS = {
    "has a name that starts with 'amq.', which is reserved": "{kind} name '{name}' contains reserved prefix 'amq.*'",
    "is predeclared and cannot be deleted": "deletion of system {thing} not allowed",
    "is internal": "cannot publish to internal {thing}",
}

_LOCKED = (
    "cannot obtain exclusive access to locked {}. It could be originally declared on another connection or the "
    "exclusive property value does not match that of the original declaration."
)

_SINGLE_ACTIVE = (
    "cannot obtain access to locked {}. basic.get operations are not supported by quorum queues with single active "
    "consumer"
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal as the listener takes it: `details` is the reply code, big-endian."""

    kind: str
    text: str
    code: int

    @property
    def details(self) -> bytes:
        return self.code.to_bytes(2, "big")


def refusal_of(error: RefusedError | FaultError, user: str = "") -> Refusal:
    """Return the reply of a refusal or a fault that the user met."""
    kind, code = next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)
    return Refusal(kind, _text_of(error, user), _CODES.get((type(error), getattr(error, "field", "")), code))


def refusal_of_deleted(thing: str) -> Refusal:
    """Return what an open connection hears whose user or virtual host is not there any more."""
    return Refusal("unauthenticated", f"{thing} is deleted", CONNECTION_FORCED)


def refusal_of_a_bug() -> Refusal:
    """Return a reply that says no more than that the client did not cause it."""
    return Refusal("bug", "internal error of the broker; see its log", INTERNAL_ERROR)


def _text_of(error: RefusedError | FaultError, user: str) -> str:
    match error:
        case NotFoundError():
            return f"vhost {error.thing.name} not found" if error.thing.kind == "vhost" else f"no {error.thing}"
        case AccessRefusedError():
            return _of_access(error, user)
        case SingleActiveError():
            return _SINGLE_ACTIVE.format(error.thing)
        case LockedError():
            return _LOCKED.format(error.thing)
        case PreconditionFailedError():
            return _of_precondition(error, user)
        case GetFromStreamError() | UnknownTypeError():
            return str(error)
        case InvalidArgumentError() if error.field:
            return f"invalid arg '{error.field.removeprefix(_ARGUMENTS)}' for {error.thing}: {error.rule}"
        case LimitReachedError() if error.rule.startswith(_TOO_MANY_QUEUES):
            thing = error.thing
            reached = f"queue limit in vhost '{thing.vhost}' ({error.limit}) is reached"
            return f"cannot declare queue '{thing.name}': {reached}"
    return str(error)


def _of_access(error: AccessRefusedError, user: str) -> str:
    thing = error.thing
    if error.permission:
        access, _, key = error.permission.partition(" permission for routing key ")
        about = f"topic {key} in {thing}" if key else str(thing)
        return f"{access.removesuffix(' permission')} access to {about} refused for user '{user}'"
    if thing.kind == "exchange" and not thing.name:
        return "operation not permitted on the default exchange"
    text = _ACCESS.get(error.rule)
    return text.format(thing=thing, kind=thing.kind, name=thing.name) if text else error.failure


def _of_precondition(error: PreconditionFailedError, user: str) -> str:
    thing = error.thing
    match error.field:
        case "if_unused":
            return f"{thing} in use"
        case "if_empty":
            return f"{thing} not empty"
        case "connections_max" if thing.vhost is not None:
            reached = f"connection limit ({error.wanted}) is reached"
            return f"access to vhost '{thing.vhost}' refused for user '{user}': {reached}"
        case "connections_max":
            return f"Connection refused for user '{user}': user connection limit ({error.wanted}) is reached"
        case "exclusive":
            return _LOCKED.format(thing)
    if error.wanted or error.found:
        name = error.field.removeprefix(_ARGUMENTS)
        return f"inequivalent arg '{name}' for {thing}: received '{error.wanted}' but current is '{error.found}'"
    return str(error)
