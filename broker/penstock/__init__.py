"""Penstock, a message broker. `penstock.connect(uri)` opens a connection, `penstock.aio.connect(uri)` one for asyncio.

Names are looked up when they are first used: a broker's process imports this package too, and has no use for the
client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock import aio
    from penstock.client import (
        PERSISTENT,
        TRANSIENT,
        Connection,
        Message,
        Properties,
        Stream,
        StreamMessage,
        StreamPublisher,
        StreamReader,
        Timestamp,
        connect,
    )
    from penstock.client.errors import (
        AccessRefusedError,
        AlreadyExistsError,
        BlockedError,
        BrokerError,
        CancelledError,
        ClosedError,
        ConnectionLostError,
        DeadlineError,
        InvalidArgumentError,
        InvalidUriError,
        LockedError,
        NotAuthenticatedError,
        NotFoundError,
        NotSupportedError,
        PenstockError,
        PreconditionFailedError,
        RefusedError,
        ReturnedError,
        TooLargeError,
    )

__all__ = [
    "PERSISTENT",
    "TRANSIENT",
    "AccessRefusedError",
    "AlreadyExistsError",
    "BlockedError",
    "BrokerError",
    "CancelledError",
    "ClosedError",
    "Connection",
    "ConnectionLostError",
    "DeadlineError",
    "InvalidArgumentError",
    "InvalidUriError",
    "LockedError",
    "Message",
    "NotAuthenticatedError",
    "NotFoundError",
    "NotSupportedError",
    "PenstockError",
    "PreconditionFailedError",
    "Properties",
    "RefusedError",
    "ReturnedError",
    "Stream",
    "StreamMessage",
    "StreamPublisher",
    "StreamReader",
    "Timestamp",
    "TooLargeError",
    "aio",
    "connect",
]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in __all__:
        raise AttributeError(f"module 'penstock' has no attribute '{name}'")
    if name == "aio":
        return import_module("penstock.aio")
    module = "penstock.client.errors" if name.endswith("Error") else "penstock.client"
    return getattr(import_module(module), name)


def _version() -> str:
    """Of the broker's wheel, or of the client's alone."""
    metadata = import_module("importlib.metadata")
    for distribution in ("penstock", "penstock-client"):
        try:
            return str(metadata.version(distribution))
        except metadata.PackageNotFoundError:
            continue
    return "unknown"
