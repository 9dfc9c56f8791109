"""A descriptor that a loop can watch: readable from `set` until `clear`."""

import socket
from threading import Lock

__all__ = ["Wake"]


class Wake:
    """A pair of sockets, which every platform's selector takes. `set` twice writes once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._is_set = False
        self._is_closed = True
        self._reading, self._writing = socket.socketpair()
        self._is_closed = False

    def __del__(self) -> None:
        # A program may drop a publisher, consumer or reader without closing it.
        self.close()

    def fileno(self) -> int:
        return self._reading.fileno()

    def set(self) -> None:
        with self._lock:
            if not self._is_set and not self._is_closed:
                self._is_set = True
                self._writing.send(b"\x01")

    def clear(self) -> None:
        with self._lock:
            if self._is_set and not self._is_closed:
                self._is_set = False
                self._reading.recv(1)

    def close(self) -> None:
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._reading.close()
                self._writing.close()
