"""A stand-in for what suites ask of RabbitMQ beside AMQP: connections by the names that clients give, and an alarm.

The broker lists its connections without these names, so clients connect through a relay that reads them in passing and
changes nothing. A connection is then closed by the broker itself. While the alarm is on, new connections reach a broker
whose disk counts as full.
"""

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler
from threading import Thread
from typing import ClassVar

import penstock
from conformance.clients.relay import RelayServer, copy

_CONNECTIONS = "/api/connections/"
_WATERMARK = "/watermark/"
_ALARM_WATERMARK_MAX = 0.01
_NAME = b"connection_nameS"
_HEADER_BYTES = 8
_READ_BYTES = 65536
_RABBITMQCTL = """#!{python}
import sys, urllib.request
command, value = sys.argv[1:]
assert command == "set_vm_memory_high_watermark", command
request = urllib.request.Request("http://127.0.0.1:{port}{path}" + value, method="PUT")
urllib.request.urlopen(request, timeout=30).close()
"""


@dataclass(slots=True)
class _Relayed:
    """The brokers behind the relay, and the names of connections by the ports from which it made them."""

    port: int
    full_port: int
    uri: str
    is_full: bool = False
    names: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Management:
    """Ports of the relay and of the HTTP server, and the path of a command in the place of rabbitmqctl."""

    amqp_port: int
    http_port: int
    rabbitmqctl: Path


@contextmanager
def management(port: int, full_port: int, uri: str, folder: Path) -> Iterator[Management]:
    """Serve for as long as the context lasts; `uri` is for gRPC at the broker on `port`."""
    relayed = _Relayed(port, full_port, uri)

    class Relay(_Relay):
        brokers = relayed

    class Answers(_Answers):
        brokers = relayed

    with RelayServer(("127.0.0.1", 0), Relay) as relay, ThreadingHTTPServer(("127.0.0.1", 0), Answers) as answers:
        servers = relay, answers
        threads = [Thread(target=server.serve_forever, daemon=True) for server in servers]
        for thread in threads:
            thread.start()
        try:
            yield Management(relay.server_address[1], answers.server_port, _command(folder, answers.server_port))
        finally:
            for server in servers:
                server.shutdown()


class _Relay(BaseRequestHandler):
    brokers: ClassVar[_Relayed]

    def handle(self) -> None:
        """Relay a connection until both sides have ended it."""
        port = self.brokers.full_port if self.brokers.is_full else self.brokers.port
        with socket.create_connection(("127.0.0.1", port)) as upstream:
            back = Thread(target=copy, args=(upstream, self.request), daemon=True)
            back.start()
            begun = self._start(upstream)
            self.brokers.names[upstream.getsockname()[1]] = _name_in(begun)
            with suppress(OSError):
                upstream.sendall(begun)
            copy(self.request, upstream)
            back.join()

    def _start(self, upstream: socket.socket) -> bytes:
        """Pass the protocol's header on, and return the first frame of the client, which has its properties."""
        begun = b""
        with suppress(OSError):
            while len(begun) < _HEADER_BYTES and (read := self.request.recv(_HEADER_BYTES - len(begun))):
                begun += read
            upstream.sendall(begun)
            return bytes(self.request.recv(_READ_BYTES))
        return b""


def _name_in(frame: bytes) -> str:
    """Return the name that a client gives in its properties, or an empty string."""
    _, found, rest = frame.partition(_NAME)
    return rest[4 : 4 + int.from_bytes(rest[:4], "big")].decode() if found else ""


class _Answers(BaseHTTPRequestHandler):
    """Connections as RabbitMQ's management names and closes them."""

    brokers: ClassVar[_Relayed]

    def do_GET(self) -> None:
        with penstock.connect(self.brokers.uri) as broker:
            found = broker.admin.list_connections()
        names = {each.id: self.brokers.names.get(int(each.peer.rpartition(":")[2]), "") for each in found}
        known = [{"name": str(id), "client_properties": {"connection_name": name}} for id, name in names.items()]
        self._answer(200, json.dumps(known).encode())

    def do_DELETE(self) -> None:
        with penstock.connect(self.brokers.uri) as broker:
            broker.admin.close_connection(int(self.path.removeprefix(_CONNECTIONS)))
        self._answer(204)

    def do_PUT(self) -> None:
        self.brokers.is_full = float(self.path.removeprefix(_WATERMARK)) < _ALARM_WATERMARK_MAX
        self._answer(204)

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing: requests are part of the cases."""

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _command(folder: Path, port: int) -> Path:
    path = folder / "rabbitmqctl"
    path.write_text(_RABBITMQCTL.format(python=sys.executable, port=port, path=_WATERMARK))
    path.chmod(0o755)
    return path
