"""HTTP/2 by hand, for requests that no client library sends: a socket, frames as bytes, and the answers.

It follows no rule of the protocol but the preface, and never answers by itself.
"""

import select
import socket
import ssl
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self
from urllib.parse import unquote

import hpack

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW_SIZE = 4
SECONDS_MAX = 30
ERRORS = {
    0: "NO_ERROR",
    1: "PROTOCOL_ERROR",
    2: "INTERNAL_ERROR",
    3: "FLOW_CONTROL_ERROR",
    5: "STREAM_CLOSED",
    6: "FRAME_SIZE_ERROR",
    7: "REFUSED_STREAM",
    8: "CANCEL",
    9: "COMPRESSION_ERROR",
    11: "ENHANCE_YOUR_CALM",
}
CODES = {
    0: "OK",
    2: "UNKNOWN",
    3: "INVALID_ARGUMENT",
    4: "DEADLINE_EXCEEDED",
    5: "NOT_FOUND",
    7: "PERMISSION_DENIED",
    8: "RESOURCE_EXHAUSTED",
    9: "FAILED_PRECONDITION",
    11: "OUT_OF_RANGE",
    12: "UNIMPLEMENTED",
    13: "INTERNAL",
    14: "UNAVAILABLE",
    16: "UNAUTHENTICATED",
}


@dataclass(frozen=True)
class Frame:
    kind: int
    flags: int
    stream: int
    payload: bytes


def frame(kind: int, flags: int, stream: int, payload: bytes = b"", length: int | None = None) -> bytes:
    """Return a frame; `length` may be false."""
    size = len(payload) if length is None else length
    return struct.pack(">I", size)[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def message(payload: bytes, length: int | None = None, flag: int = 0) -> bytes:
    """Return a gRPC message with its prefix, which may be false."""
    return struct.pack(">BI", flag, len(payload) if length is None else length) + payload


class Wire:
    """One connection. Odd streams are the client's; `open` counts them up."""

    def __init__(self, port: int, authorization: str = "", *, window: int | None = None, greets: bool = True) -> None:
        """Connect. `window` is the initial window of streams; the connection's window is large."""
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._encoder = hpack.Encoder()
        self._decoder = hpack.Decoder()
        self._received = b""
        self._next = 1
        self._authorization = authorization
        self.window = 65_535
        """What the broker allows to be sent on the connection, as it was when the connection began."""
        self.stream_window = 65_535
        """The same for each stream."""
        if greets:
            settings = b"" if window is None else struct.pack(">HI", INITIAL_WINDOW_SIZE, window)
            self.send(PREFACE + frame(SETTINGS, 0, 0, settings) + frame(SETTINGS, ACK, 0))
            self.send(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", (1 << 30) - 1)))
            for found in self.frames():
                if found.kind == SETTINGS:
                    broker: dict[int, int] = dict(struct.iter_unpack(">HI", found.payload))
                    self.stream_window = broker.get(INITIAL_WINDOW_SIZE, self.stream_window)
                if found.kind == WINDOW_UPDATE:  # the broker's window is known now
                    self.window += struct.unpack(">I", found.payload)[0]
                    break

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def with_tls(self, context: ssl.SSLContext) -> None:
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")

    def send(self, data: bytes) -> bool:
        """Send; return False when the other side has closed."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            return False
        return True

    def send_some(self, data: bytes, seconds: float) -> int:
        """Send as many bytes as are accepted before a pause of so many seconds."""
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

    def headers(self, path: str, *more: tuple[str, str]) -> list[tuple[str, str]]:
        listed = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost")]
        listed += [("content-type", "application/grpc"), ("te", "trailers")]
        return [*listed, *([("authorization", self._authorization)] if self._authorization else []), *more]

    def open(self, path: str, *more: tuple[str, str], flags: int = END_HEADERS) -> int:
        return self.open_with(self.block(path, *more), flags)

    def block(self, path: str, *more: tuple[str, str]) -> bytes:
        """Return the packed headers of a request."""
        return bytes(self._encoder.encode(self.headers(path, *more)))

    def open_with(self, block: bytes, flags: int = END_HEADERS) -> int:
        stream, self._next = self._next, self._next + 2
        self.send(frame(HEADERS, flags, stream, block))
        return stream

    def request(self, path: str, data: bytes, flags: int = END_STREAM) -> int:
        """Send a whole unary request, or the start of a stream with `flags` 0, in frames of 16 KiB."""
        stream = self.open(path)
        for start in range(0, max(1, len(data)), 1 << 14):
            part = data[start : start + (1 << 14)]
            is_last = start + (1 << 14) >= len(data)
            if not self.send(frame(DATA, flags if is_last else 0, stream, part)):
                break
        return stream

    def request_within_windows(self, path: str, data: bytes) -> int:
        """Send the first request of the connection as an ordinary client does: no more than the broker has room for.

        It stops when the broker answers before it has the whole request, or opens no window.
        """
        stream = self.open(path)
        rooms = {0: self.window, stream: self.stream_window}
        sent = 0
        while sent < len(data) and (min(rooms.values()) > 0 or self._more_room(rooms)):
            part = data[sent : sent + min(1 << 14, *rooms.values())]
            sent += len(part)
            if not self.send(frame(DATA, END_STREAM if sent == len(data) else 0, stream, part)):
                break
            rooms = {each: room - len(part) for each, room in rooms.items()}
        return stream

    def _more_room(self, rooms: dict[int, int]) -> bool:
        """Wait until all these windows are open; return False when something else comes first, which stays unread."""
        for found in self.frames():
            if found.kind == WINDOW_UPDATE and found.stream in rooms:
                rooms[found.stream] += struct.unpack(">I", found.payload)[0]
            elif found.kind in (HEADERS, RST_STREAM, GOAWAY):
                self._received = frame(found.kind, found.flags, found.stream, found.payload) + self._received
                return False
            if min(rooms.values()) > 0:
                return True
        return False

    def frames(self, seconds: float = SECONDS_MAX) -> Iterator[Frame]:
        """Yield frames until the other side closes or nothing came for so long."""
        while True:
            while (found := self._take()) is not None:
                yield found
            if not self._is_readable(seconds):
                return
            try:
                more = self.socket.recv(1 << 16)
            except (ConnectionResetError, TimeoutError):
                return
            if not more:
                return
            self._received += more

    def opened(self, seconds: float) -> int:
        """Return by how much the broker opens the connection's window within that time."""
        for found in self.frames(seconds):
            if found.kind == WINDOW_UPDATE and found.stream == 0:
                return int(struct.unpack(">I", found.payload)[0])
        return 0

    def is_hung_up(self, seconds: float = SECONDS_MAX) -> bool:
        """Return whether the other side closes within that time."""
        for _ in self.frames(seconds):
            continue
        try:
            return self._is_readable(0) and not self.socket.recv(1)
        except ConnectionResetError:
            return True

    def answer(self, stream: int, seconds: float = SECONDS_MAX) -> str:
        """Return how a stream ended, in words: a gRPC status, an HTTP status, a reset, or the end of the connection."""
        for found in self.frames(seconds):
            if found.kind == GOAWAY:
                code = struct.unpack(">I", found.payload[4:8])[0]
                return f"GOAWAY {ERRORS.get(code, code)} {found.payload[8:].decode(errors='replace')}".strip()
            if found.kind == HEADERS:
                listed = {str(key): str(value) for key, value in self._decoder.decode(found.payload)}
                if found.stream == stream and "grpc-status" in listed:
                    code = int(listed["grpc-status"])
                    return f"{CODES.get(code, code)}: {unquote(listed.get('grpc-message', ''))}"
                if found.stream == stream and listed.get(":status", "200") != "200":
                    return f"HTTP {listed[':status']}"
            if found.kind == RST_STREAM and found.stream == stream:
                code = struct.unpack(">I", found.payload)[0]
                return f"RST_STREAM {ERRORS.get(code, code)}"
        return "hung up" if self.is_hung_up(0.1) else "no answer"

    def _is_readable(self, seconds: float) -> bool:
        poll = select.poll()  # `select` has no numbers above 1,023
        poll.register(self.socket, select.POLLIN)
        return bool(poll.poll(seconds * 1_000))

    def _take(self) -> Frame | None:
        if len(self._received) < 9:
            return None
        length = int.from_bytes(self._received[:3])
        if len(self._received) < 9 + length:
            return None
        kind, flags, stream = struct.unpack(">BBI", self._received[3:9])
        payload = self._received[9 : 9 + length]
        self._received = self._received[9 + length :]
        return Frame(kind, flags, stream & 0x7FFFFFFF, payload)
