"""AMQP 0-9-1 by hand: frames that no client library sends, and the broker's answers in words.

It checks nothing that it sends. Answers are read as a client reads them: the reply code and text of a close, or the end
of the socket.
"""

import socket
import struct
import time
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple, Self

SECONDS_MAX = 60
HEADER = b"AMQP\0\0\x09\x01"
METHOD, CONTENT, BODY, HEARTBEAT, END = 1, 2, 3, 8, b"\xce"

START, START_OK, TUNE, TUNE_OK = (10, 10), (10, 11), (10, 30), (10, 31)
OPEN, OPEN_OK, CLOSE, CLOSE_OK = (10, 40), (10, 41), (10, 50), (10, 51)
CHANNEL_OPEN, CHANNEL_OPEN_OK, CHANNEL_CLOSE, CHANNEL_CLOSE_OK = (20, 10), (20, 11), (20, 40), (20, 41)
EXCHANGE_DECLARE, QUEUE_DECLARE, QUEUE_DECLARE_OK, QUEUE_DELETE = (40, 10), (50, 10), (50, 11), (50, 40)
CONSUME, PUBLISH, DELIVER, GET, ACK, RECOVER = (60, 20), (60, 40), (60, 60), (60, 70), (60, 80), (60, 110)
CONFIRM_SELECT = (85, 10)


class Frame(NamedTuple):
    kind: int
    channel: int
    payload: bytes

    @property
    def method(self) -> tuple[int, ...]:
        return struct.unpack(">HH", self.payload[:4]) if self.kind == METHOD else ()


def frame(kind: int, channel: int, payload: bytes, end: bytes = END) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + end


def method(channel: int, name: tuple[int, int], arguments: bytes = b"") -> bytes:
    return frame(METHOD, channel, struct.pack(">HH", *name) + arguments)


def short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def publish(channel: int, key: bytes, flags: int = 0) -> bytes:
    """Return the method alone; `flags` 1 is mandatory."""
    return method(channel, PUBLISH, b"\0\0" + short(b"") + short(key) + bytes([flags]))


def content(channel: int, size: int) -> bytes:
    """Return a content header that announces so many bytes, with no properties."""
    return frame(CONTENT, channel, struct.pack(">HHQH", 60, 0, size, 0))


def declare_queue(channel: int, name: bytes, arguments: bytes = b"\0\0\0\0", flags: int = 0) -> bytes:
    """Return the method; `arguments` is a table with its length. Flags: 2 durable, 4 exclusive, 16 no answer."""
    return method(channel, QUEUE_DECLARE, b"\0\0" + short(name) + bytes([flags]) + arguments)


def consume(channel: int, queue: bytes, tag: bytes, flags: int = 0) -> bytes:
    """Return the method. Flags: 2 no acks, 8 no answer."""
    return method(channel, CONSUME, b"\0\0" + short(queue) + short(tag) + bytes([flags]) + b"\0\0\0\0")


class AmqpWire:
    """A connection, which greets unless told otherwise."""

    def __init__(self, port: int, *, greets: bool = True) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX)
        self._received = b""
        if greets:
            self.send(HEADER)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> bool:
        """Return whether the other side was still there."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def send_some(self, data: bytes, seconds: float) -> int:
        """Send until the other side takes nothing for so long, or is gone; return how much it took."""
        sent = 0
        self.socket.settimeout(seconds)
        try:
            while sent < len(data):
                sent += self.socket.send(data[sent : sent + (1 << 20)])
        except (TimeoutError, BrokenPipeError, ConnectionResetError):
            pass
        finally:
            self.socket.settimeout(SECONDS_MAX)
        return sent

    def log_in(self, heartbeat: int = 0, frame_max: int = 131_072) -> Self:
        """Log in as guest, enter the virtual host `/` and open channel 1."""
        self.expect(START)
        self.send(self.start_ok())
        self.expect(TUNE)
        self.send(method(0, TUNE_OK, struct.pack(">HIH", 2_047, frame_max, heartbeat)))
        self.send(method(0, OPEN, short(b"/") + b"\0\0"))
        self.expect(OPEN_OK)
        self.open_channel(1)
        return self

    def start_ok(self, properties: bytes | None = None) -> bytes:
        """Return the answer to the greeting; `properties` is a table with its length."""
        flag = short(b"authentication_failure_close") + b"t\1"
        known = long(short(b"capabilities") + b"F" + long(flag))
        arguments = (known if properties is None else properties) + short(b"PLAIN")
        return method(0, START_OK, arguments + long(b"\0guest\0guest") + short(b"en_US"))

    def open_channel(self, number: int) -> None:
        self.send(method(number, CHANNEL_OPEN, b"\0"))
        self.expect(CHANNEL_OPEN_OK)

    def expect(self, name: tuple[int, int]) -> Frame:
        """Return the next method, which has to be this one."""
        for found in self.frames():
            if found.kind == METHOD:
                assert found.method == name, f"wanted {name}, got: {describe(found)}"
                return found
        raise AssertionError(f"wanted {name}, and the broker hung up")

    def frames(self, seconds: float = SECONDS_MAX) -> Iterator[Frame]:
        """Yield frames until the other side closes or nothing came for so long."""
        while True:
            while (found := self._take()) is not None:
                yield found
            self.socket.settimeout(seconds)
            try:
                more = self.socket.recv(1 << 16)
            except (ConnectionResetError, TimeoutError):
                return
            finally:
                self.socket.settimeout(SECONDS_MAX)
            if not more:
                return
            self._received += more

    def answer(self, seconds: float = SECONDS_MAX) -> str:
        """Return the next close in words, or `hung up`; a close of the connection is confirmed."""
        for found in self.frames(seconds):
            if found.method in (CLOSE, CHANNEL_CLOSE):
                if found.method == CLOSE:
                    self.send(method(0, CLOSE_OK))
                return describe(found)
        return "hung up" if self.is_hung_up(0.1) else "no answer"

    def is_hung_up(self, seconds: float = SECONDS_MAX) -> bool:
        """Return whether the other side closes within that time, whatever it sends before."""
        until = time.monotonic() + seconds
        try:
            while (left := until - time.monotonic()) > 0:
                self.socket.settimeout(left)
                if not self.socket.recv(1 << 16):
                    return True
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
        return False

    def _take(self) -> Frame | None:
        if len(self._received) < 7:
            return None
        kind, channel, size = struct.unpack(">BHI", self._received[:7])
        if len(self._received) < 8 + size:
            return None
        payload = self._received[7 : 7 + size]
        self._received = self._received[8 + size :]
        return Frame(kind, channel, payload)


def describe(found: Frame) -> str:
    """Return the reply code and text of a close, or the name of a method in numbers."""
    if found.method not in (CLOSE, CHANNEL_CLOSE):
        return str(found.method)
    code, length = struct.unpack(">HB", found.payload[4:7])
    return f"{code} {found.payload[7 : 7 + length].decode(errors='replace')}"
