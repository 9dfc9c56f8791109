"""Relays on 127.0.0.1 between a client and a broker.

Over loopback an answer can be there before the event loop of a client has turned twice. A client may then take its own
steps in an order that its suite does not expect. `late_answers` lets the broker's answers come later.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from time import sleep

_READ_BYTES = 65536
# More than an event loop needs for three turns on a busy machine.
_LATE_SECONDS = 0.05


class RelayServer(ThreadingTCPServer):
    """A server whose threads end with the process."""

    daemon_threads = True


@contextmanager
def late_answers(port: int) -> Iterator[int]:
    """Relay to the broker on `port`, whose answers come as late as from afar, and return the relay's port."""

    class Late(BaseRequestHandler):
        def handle(self) -> None:
            """Relay a connection until both sides have ended it."""
            with socket.create_connection(("127.0.0.1", port)) as upstream:
                back = Thread(target=copy, args=(upstream, self.request, _LATE_SECONDS), daemon=True)
                back.start()
                copy(self.request, upstream)
                back.join()

    with RelayServer(("127.0.0.1", 0), Late) as relay:
        Thread(target=relay.serve_forever, daemon=True).start()
        try:
            yield relay.server_address[1]
        finally:
            relay.shutdown()


def copy(source: socket.socket, target: socket.socket, late_seconds: float = 0.0) -> None:
    """Copy until the source ends, each part so late, and then end the target."""
    with suppress(OSError):
        while read := source.recv(_READ_BYTES):
            sleep(late_seconds)
            target.sendall(read)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
