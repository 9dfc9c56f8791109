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
    PreconditionFailedError,
    RefusedError,
    StoppedError,
    TooLargeError,
)

CONNECTION_FORCED, ACCESS_REFUSED, NOT_FOUND, RESOURCE_LOCKED = 320, 403, 404, 405
PRECONDITION_FAILED, RESOURCE_ERROR, INTERNAL_ERROR = 406, 506, 541

# Error -> kind, as the listener knows it, and reply code. A subclass without a row of its own takes its parent's.
TABLE: dict[type[Exception], tuple[str, int]] = {
    NotFoundError: ("not_found", NOT_FOUND),
    AccessRefusedError: ("access_refused", ACCESS_REFUSED),
    NotAuthenticatedError: ("unauthenticated", ACCESS_REFUSED),
    PreconditionFailedError: ("precondition_failed", PRECONDITION_FAILED),
    LockedError: ("precondition_failed", RESOURCE_LOCKED),
    InvalidArgumentError: ("invalid_argument", PRECONDITION_FAILED),
    TooLargeError: ("invalid_argument", PRECONDITION_FAILED),
    LimitReachedError: ("limit_reached", PRECONDITION_FAILED),
    RefusedError: ("precondition_failed", PRECONDITION_FAILED),
    CorruptError: ("corrupt", INTERNAL_ERROR),
    DiskFullError: ("limit_reached", RESOURCE_ERROR),
    StoppedError: ("unavailable", CONNECTION_FORCED),
    BusyError: ("unavailable", RESOURCE_ERROR),
    FaultError: ("unavailable", INTERNAL_ERROR),
}

_LOCKED = (
    "cannot obtain exclusive access to locked {}. It could be originally declared on another connection or the "
    "exclusive property value does not match that of the original declaration."
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


def refusal_of(error: RefusedError | FaultError) -> Refusal:
    """Return the reply of a refusal or a fault."""
    kind, code = next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)
    return Refusal(kind, _text_of(error), code)


def refusal_of_deleted(user: str) -> Refusal:
    """Return what an open connection hears whose user is not there any more."""
    return Refusal("unauthenticated", f"user '{user}' was deleted", CONNECTION_FORCED)


def refusal_of_a_bug() -> Refusal:
    """Return a reply that says no more than that the client did not cause it."""
    return Refusal("bug", "internal error of the broker; see its log", INTERNAL_ERROR)


def _text_of(error: RefusedError | FaultError) -> str:
    if isinstance(error, NotFoundError):
        return f"vhost {error.thing.name} not found" if error.thing.kind == "vhost" else f"no {error.thing}"
    if isinstance(error, AccessRefusedError):
        return error.failure
    if isinstance(error, LockedError):
        return _LOCKED.format(error.thing)
    if isinstance(error, PreconditionFailedError) and error.field:
        name = error.field.removeprefix("arguments.")
        return f"inequivalent arg '{name}' for {error.thing}: received '{error.wanted}' but current is '{error.found}'"
    return str(error)
