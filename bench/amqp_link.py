"""Connections over AMQP 0-9-1 from asyncio, with the few methods that rows need and the native load generator lacks.

It trusts the broker: it reads the frames that it expects, and raises ConnectionError when another method comes.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Self

__all__ = ["Link", "delayed_publish"]

METHOD, HEADER, BODY = 1, 2, 3
FRAME_END = b"\xce"
START_OK, TUNE_OK, OPEN, CLOSE, CLOSE_OK = (10, 11), (10, 31), (10, 40), (10, 50), (10, 51)
CHANNEL_OPEN, EXCHANGE_DECLARE, QUEUE_DECLARE, QUEUE_BIND = (20, 10), (40, 10), (50, 10), (50, 20)
CONSUME, PUBLISH, ACK, SELECT = (60, 20), (60, 40), (60, 80), (85, 10)
DURABLE, NO_ACK = 2, 2
# Headers and the delivery mode, which is persistent.
PROPERTIES = struct.pack(">H", 1 << 13 | 1 << 12)
PERSISTENT = b"\x02"

Method = tuple[int, int]


class Link:
    """A connection with one channel, open in the block."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writer.write(b"AMQP\x00\x00\x09\x01")
        await self._expect((10, 10))
        log_in = table() + short("PLAIN") + long(b"\x00guest\x00guest") + short("en_US")
        self._send(START_OK, log_in, channel=0)
        tune = await self._expect((10, 30))
        channels_max, frame_bytes_max, _ = struct.unpack(">HIH", tune[:8])
        self._send(TUNE_OK, struct.pack(">HIH", channels_max, frame_bytes_max, 0), channel=0)
        self._send(OPEN, short("/") + short("") + b"\x00", channel=0)
        await self._expect((10, 41))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._send(CLOSE, struct.pack(">H", 200) + short("") + bytes(4), channel=0)
            await self._expect(CLOSE_OK)
        self._writer.close()

    async def open_channel(self) -> None:
        await self._ask(CHANNEL_OPEN, short(""))

    async def declare_delayed(self, exchange: str, queue: str) -> None:
        """Declare a durable exchange that delays messages, and a durable queue that is bound to it by its name."""
        kind = short("x-delayed-type") + b"S" + long(b"direct")
        await self._ask(
            EXCHANGE_DECLARE, bytes(2) + short(exchange) + short("x-delayed-message") + bytes([DURABLE]) + table(kind)
        )
        await self._ask(QUEUE_DECLARE, bytes(2) + short(queue) + bytes([DURABLE]) + table())
        await self._ask(QUEUE_BIND, bytes(2) + short(queue) + short(exchange) + short(queue) + b"\x00" + table())

    async def publish_confirmed(self, message: bytes, count: int, batch: int) -> None:
        """Publish `message`, which is encoded, so many times, and wait for the confirm of each batch."""
        await self._ask(SELECT, b"\x00")
        published = 0
        while published < count:
            some = min(batch, count - published)
            self._writer.write(message * some)
            await self._writer.drain()
            published += some
            while await self._confirmed_up_to() < published:
                pass

    async def publish(self, messages: bytes) -> None:
        self._writer.write(messages)
        await self._writer.drain()

    async def consume(self, queue: str) -> AsyncIterator[bytes]:
        """Return the bodies of deliveries, each of which fits one frame. The broker wants no acks for them."""
        await self._ask(CONSUME, bytes(2) + short(queue) + short("") + bytes([NO_ACK]) + table())
        while True:
            kind, payload = await self._frame()
            if kind == BODY:
                yield payload

    async def _confirmed_up_to(self) -> int:
        payload = await self._expect(ACK)
        tag: int = struct.unpack(">Q", payload[:8])[0]
        return tag

    async def _ask(self, method: Method, arguments: bytes) -> bytes:
        self._send(method, arguments)
        return await self._expect((method[0], method[1] + 1))

    def _send(self, method: Method, arguments: bytes, channel: int = 1) -> None:
        self._writer.write(frame(METHOD, struct.pack(">HH", *method) + arguments, channel))

    async def _expect(self, method: Method) -> bytes:
        """Return the arguments of the next method."""
        kind, payload = await self._frame()
        if kind != METHOD or struct.unpack(">HH", payload[:4]) != method:
            raise ConnectionError(f"the broker sent {payload[:100]!r} instead of the method {method}")
        return payload[4:]

    async def _frame(self) -> tuple[int, bytes]:
        kind, _, size = struct.unpack(">BHI", await self._reader.readexactly(7))
        payload = await self._reader.readexactly(size + 1)
        return kind, payload[:-1]


def delayed_publish(exchange: str, key: str, delay_ms: int, body: bytes) -> Iterator[bytes]:
    """Return the frames of a persistent message with the header x-delay."""
    yield frame(METHOD, struct.pack(">HH", *PUBLISH) + bytes(2) + short(exchange) + short(key) + b"\x00")
    headers = table(short("x-delay") + b"I" + struct.pack(">i", delay_ms))
    yield frame(HEADER, struct.pack(">HHQ", 60, 0, len(body)) + PROPERTIES + headers + PERSISTENT)
    yield frame(BODY, body)


def frame(kind: int, payload: bytes, channel: int = 1) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + FRAME_END


def short(text: str) -> bytes:
    encoded = text.encode()
    return bytes([len(encoded)]) + encoded


def long(octets: bytes) -> bytes:
    return struct.pack(">I", len(octets)) + octets


def table(fields: bytes = b"") -> bytes:
    return long(fields)
