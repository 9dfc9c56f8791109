"""The target of an attack: a broker's address, credentials, and the cases.

A case attacks and returns the broker's answer as a sentence; it fails when that is not useful to a client.
"""

import base64
import ssl
from collections.abc import Callable
from dataclasses import dataclass

import penstock
from hostile.amqp_wire import AmqpWire
from hostile.wire import Wire, message

FIRST_REQUEST_SECONDS = 2
MESSAGE_BYTES_MAX = 16 << 20
BUFFER_BYTES_MAX = 256 << 20
PUBLISH = "/penstock.v1.MessagingService/Publish"
CONSUME = "/penstock.v1.MessagingService/Consume"
STRANGER = "Basic " + base64.b64encode(b"nobody:nothing").decode()
KNOWN = "Basic " + base64.b64encode(b"guest:guest").decode()


@dataclass(frozen=True)
class Target:
    uri: str
    port: int
    metrics_port: int
    tls_port: int
    tls: ssl.SSLContext
    amqp_port: int

    def wire(self, authorization: str = "", *, window: int | None = None) -> Wire:
        return Wire(self.port, authorization, window=window)

    def amqp(self, *, greets: bool = True) -> AmqpWire:
        return AmqpWire(self.amqp_port, greets=greets)

    def connect(self) -> penstock.Connection:
        return penstock.connect(self.uri)

    def ask(self, method: str, payload: bytes, authorization: str = KNOWN) -> str:
        """Return how a unary call of the admin service ends."""
        path = method if method.startswith("/") else f"/penstock.v1.AdminService/{method}"
        with self.wire(authorization) as wire:
            return wire.answer(wire.request_within_windows(path, message(payload)))


def _nothing(target: Target) -> None:
    del target


@dataclass(frozen=True)
class Case:
    """A case; `prepare` runs first, and once: it is legitimate and no part of the attack."""

    attack: Callable[[Target], str]
    prepare: Callable[[Target], None] = _nothing

    @property
    def name(self) -> str:
        return self.attack.__name__.replace("_", " ")


def expect(found: str, *wanted: str) -> str:
    """Return the answer, when it begins with one of those wanted."""
    assert found.startswith(wanted), f"wanted {' or '.join(wanted)}, got: {found}"
    return found
