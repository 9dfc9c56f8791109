"""A TCP proxy that stops forwarding and keeps its sockets open, as a host that vanishes seems to do to its clients."""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

__all__ = ["StoppingProxy"]

BYTES_MAX = 65_536
# An answer to a ping of HTTP/2 has 17 bytes, and the news of a window that may come with it 13.
PING_BYTES_MAX = 30


class StoppingProxy:
    """Forwards connections to a local port; use it as a context manager."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._goes = threading.Event()
        self._goes.set()
        self._is_closed = False
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self.port: int = self._listener.getsockname()[1]
        # Bytes after which it stops by itself, in the direction of the client, but for answers to pings.
        self.stop_after: int | None = None
        self.connections = 0

    def stop(self) -> None:
        """Forward nothing more, on connections old and new."""
        self._goes.clear()

    def go(self) -> None:
        self._goes.set()

    def hang_up(self) -> None:
        """Close the connections so far."""
        connected, self._sockets = self._sockets, []
        for each in connected:
            close(each)

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closed = True
        self._goes.set()
        close(self._listener)
        # A client may have connected again at this moment: its sockets are in the list only then.
        self._accepting.join()
        for each in self._sockets:
            close(each)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                self.connections += 1
                broker = socket.create_connection(("127.0.0.1", self._port))
                self._sockets.append(broker)
                threading.Thread(target=self._forward, args=(client, broker, False), daemon=True).start()
                threading.Thread(target=self._forward, args=(broker, client, True), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(BYTES_MAX):
                if is_answer and self.stop_after is not None and len(data) > PING_BYTES_MAX:
                    passed, data = data[: self.stop_after], data[self.stop_after :]
                    target.sendall(passed)
                    self.stop_after -= len(passed)
                    if not data:
                        continue
                    self.stop_after = None
                    self.stop()
                self._goes.wait()
                if self._is_closed:
                    return
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


def close(each: socket.socket) -> None:
    """Close a socket and end a call that waits for it."""
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
