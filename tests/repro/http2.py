"""HTTP/2 by hand, for scripts that open more than a client library would."""

import select
import socket
import struct
import time

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def grpc_message(payload):
    return struct.pack(">BI", 0, len(payload)) + payload


def _text(value):
    """HPACK's literal string, not packed."""
    length = len(value)
    if length < 127:
        return bytes([length]) + value
    out, length = bytearray([127]), length - 127
    while length >= 128:
        out.append(length % 128 + 128)
        length //= 128
    return bytes(out) + bytes([length]) + value


class Wire:
    """One connection that keeps no rules but those of the frames; it answers pings."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self._next = 1
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0) + frame(SETTINGS, ACK, 0))
        self.socket.sendall(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", (1 << 30) - 1)))

    def request(self, path, authorization, *messages, ends=True):
        """Open a stream with these gRPC messages, and return its number."""
        listed = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost")]
        listed += [("content-type", "application/grpc"), ("te", "trailers")]
        listed += [("authorization", authorization)] if authorization else []
        block = b"".join(b"\0" + _text(name.encode()) + _text(value.encode()) for name, value in listed)
        stream, self._next = self._next, self._next + 2
        data = b"".join(grpc_message(each) for each in messages)
        self.socket.sendall(
            frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM if ends else 0, stream, data)
        )
        return stream

    def frames(self, seconds):
        """Yield kind, flags, stream and payload of each frame, until none came for so long or the peer hung up."""
        while True:
            while (found := self._take()) is not None:
                if found[0] == PING and not found[1] & ACK:
                    self.socket.sendall(frame(PING, ACK, 0, found[3]))
                yield found
            if not select.select([self.socket], [], [], seconds)[0]:
                return
            try:
                more = self.socket.recv(1 << 16)
            except OSError:
                more = b""
            if not more:
                self.is_closed = True
                return
            self._received += more

    is_closed = False

    def closes_within(self, seconds):
        """Return after how many seconds the other side hung up, answering its pings; None when it did not."""
        began = time.monotonic()
        while (left := began + seconds - time.monotonic()) > 0:
            for _ in self.frames(min(left, 0.5)):
                if time.monotonic() - began > seconds:
                    break
            if self.is_closed:
                return time.monotonic() - began
        return None

    def ended(self, seconds, count=1):
        """Wait for the end of so many streams, and return how many ended."""
        found = 0
        for kind, flags, _, _ in self.frames(seconds):
            found += kind == RST_STREAM or (kind in (HEADERS, DATA) and bool(flags & END_STREAM))
            if found >= count or kind == GOAWAY:
                break
        return found

    def close(self):
        self.socket.close()

    def _take(self):
        if len(self._received) < 9:
            return None
        length = int.from_bytes(self._received[:3])
        if len(self._received) < 9 + length:
            return None
        kind, flags, stream = struct.unpack(">BBI", self._received[3:9])
        payload = self._received[9 : 9 + length]
        self._received = self._received[9 + length :]
        return kind, flags, stream & 0x7FFFFFFF, payload
