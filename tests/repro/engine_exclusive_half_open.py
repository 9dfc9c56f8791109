"""An exclusive consumer's connection breaks without the broker hearing of it.

The consumer comes back before the broker has given up the old socket: it must go on trying, not end for good.
"""

import contextlib
import socket
import threading
import time

from rig import Broker, free_port, penstock, run

HELD_SECONDS = 5


class Proxy:
    """Forwards connections; `break_clients` hangs up on the clients and leaves the broker's side open."""

    def __init__(self, port):
        self.port, self._target = free_port(), port
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._clients, self._upstreams = [], []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client, _ = self._listener.accept()
            upstream = socket.create_connection(("127.0.0.1", self._target))
            self._clients.append(client)
            self._upstreams.append(upstream)
            for source, sink in ((client, upstream), (upstream, client)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)

    def break_clients(self):
        """Return a function that closes what is still open at the broker."""
        held, self._upstreams = self._upstreams, []
        clients, self._clients = self._clients, []
        for client in clients:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

        def let_go():
            for upstream in held:
                with contextlib.suppress(OSError):
                    upstream.shutdown(socket.SHUT_RDWR)

        return let_go


def check():
    with Broker() as broker:
        broker.start()
        proxy = Proxy(broker.port)
        with penstock.connect(broker.uri) as direct:
            direct.declare_queue("letters")
            connection = penstock.connect(f"penstock://guest:guest@127.0.0.1:{proxy.port}/")
            got, ended = [], []

            def consume():
                try:
                    for message in connection.consume("letters", exclusive=True):
                        got.append(message.body)
                        message.ack()
                except penstock.PenstockError as error:
                    ended.append((time.monotonic(), error))

            threading.Thread(target=consume, daemon=True).start()
            direct.publish(b"before", routing_key="letters")
            until = time.monotonic() + 10
            while not got and time.monotonic() < until:
                time.sleep(0.05)
            time.sleep(0.3)
            broke = time.monotonic()
            let_go = proxy.break_clients()
            time.sleep(HELD_SECONDS)
            let_go()
            direct.publish(b"after", routing_key="letters")
            until = time.monotonic() + 15
            while b"after" not in got and not ended and time.monotonic() < until:
                time.sleep(0.05)
            time.sleep(0.5)
            ready = direct.admin.get_queue("letters").ready_count
        broker.kill()
    how = "went on"
    if ended:
        when, error = ended[0]
        how = f"ended {when - broke:.1f} s after the break with {type(error).__name__}: {error}"
    return (
        b"after" not in got,
        f"the broker held the old socket for {HELD_SECONDS} s; the consumer {how}; {ready} ready",
    )


run(check)
