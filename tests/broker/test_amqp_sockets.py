"""AMQP over a Unix socket and in WebSockets, in plaintext and over TLS."""

import socket
import ssl
import stat
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trustme

from support import Broker
from support.broker import BrokerError, free_ports

HEADER = b"AMQP\0\0\x09\x01"
SECONDS_MAX = 30
REQUEST = (
    b"GET /ws HTTP/1.1\r\nHost: mq\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: amqp\r\n\r\n"
)


def until(each: socket.socket, end: bytes) -> bytes:
    """Read until these bytes have come; return all."""
    found = b""
    while end not in found:
        more = each.recv(4_096)
        assert more, f"the broker hung up after {found!r}"
        found += more
    return found


def masked(payload: bytes) -> bytes:
    """Return a binary frame of a client, whose mask is zero."""
    return bytes([0x82, 0x80 | len(payload)]) + b"\0\0\0\0" + payload


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sockets")


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[Broker]:
    path, web = folder / "amqp.sock", free_ports(1)[0]
    config = folder / "penstock.toml"
    config.write_text(
        f'amqp_socket = "{path}"\namqp_ws_origins = "https://app.example.com"\namqp_ws = "127.0.0.1:{web}"\n'
    )
    with Broker(folder / "data", "--config", str(config)) as broker:
        yield broker


def greeting(path: Path) -> bytes:
    with closing(socket.socket(socket.AF_UNIX)) as client:
        client.settimeout(SECONDS_MAX)
        client.connect(str(path))
        client.sendall(HEADER)
        return until(client, b"PLAIN AMQPLAIN")


def test_a_unix_socket_is_served_also_after_a_kill_and_goes_with_a_stop(broker: Broker, folder: Path) -> None:
    path = folder / "amqp.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert greeting(path).startswith(b"\1\0\0")

    broker.kill()
    assert path.is_socket()
    broker.start()
    assert greeting(path).startswith(b"\1\0\0")

    broker.stop()
    assert not path.exists()
    broker.start()


def test_the_socket_of_a_broker_that_runs_is_not_taken_from_it(broker: Broker, folder: Path) -> None:
    path = folder / "amqp.sock"
    config = folder / "second.toml"
    config.write_text(f'amqp_socket = "{path}"\n')
    with pytest.raises(BrokerError, match=r"cannot listen for amqp on .*amqp.sock: another process listens there"):
        Broker(folder / "second", "--config", str(config)).start()
    assert greeting(path).startswith(b"\1\0\0")


def test_a_file_that_is_no_socket_is_kept_and_named(folder: Path) -> None:
    path = folder / "notes.txt"
    path.write_text("mine")
    config = folder / "other.toml"
    config.write_text(f'amqp_socket = "{path}"\n')
    with pytest.raises(BrokerError, match=r"cannot listen for amqp on .*notes.txt: the file there is not a socket"):
        Broker(folder / "other", "--config", str(config)).start()
    assert path.read_text() == "mine"


def web_greeting(client: socket.socket) -> bytes:
    client.settimeout(SECONDS_MAX)
    client.sendall(REQUEST)
    head = until(client, b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 ")
    assert b"Sec-WebSocket-Protocol: amqp\r\n" in head
    client.sendall(masked(HEADER[:3]) + masked(HEADER[3:]))
    return until(client, b"PLAIN AMQPLAIN")


def test_a_web_socket_is_greeted_with_the_start_of_amqp(broker: Broker, folder: Path) -> None:
    port = int((folder / "penstock.toml").read_text().rpartition(":")[2].strip('"\n'))
    with socket.create_connection(("127.0.0.1", port)) as client:
        found = web_greeting(client)

    (length,) = struct.unpack(">H", found[2:4])
    assert found[:2] == b"\x82\x7e", "a binary message with a length of 16 bits"
    assert found[4:7] == b"\1\0\0"
    assert length == len(found) - 4
    assert "amqp_ws" in broker.log


@pytest.mark.usefixtures("broker")
def test_a_page_of_another_host_is_refused_unless_its_origin_is_listed(folder: Path) -> None:
    port = int((folder / "penstock.toml").read_text().rpartition(":")[2].strip('"\n'))

    def status(origin: str) -> bytes:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.settimeout(SECONDS_MAX)
            client.sendall(REQUEST.replace(b"Host: mq\r\n", f"Host: mq\r\nOrigin: {origin}\r\n".encode()))
            return until(client, b"\r\n\r\n").split(b" ")[1]

    assert status("https://evil.example.com") == b"403"
    assert status("https://app.example.com") == b"101"


def test_amqp_and_web_sockets_are_served_over_tls(folder: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    for pem in certificate.cert_chain_pems:
        pem.write_to_path(folder / "cert.pem", append=True)
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    amqp, web = free_ports(2)
    config = folder / "tls.toml"
    config.write_text(f'metrics_tls = false\ntls_certificate = "{folder}/cert.pem"\ntls_key = "{folder}/key.pem"\n')
    flags = ("--amqp", f"127.0.0.1:{amqp}", "--amqp-ws", f"127.0.0.1:{web}")
    with Broker(folder / "tls", "--config", str(config), *flags):
        with (
            socket.create_connection(("127.0.0.1", web)) as plain,
            trust.wrap_socket(plain, server_hostname="localhost") as client,
        ):
            assert b"\1\0\0" in web_greeting(client)
        with (
            socket.create_connection(("127.0.0.1", amqp)) as plain,
            trust.wrap_socket(plain, server_hostname="localhost") as client,
        ):
            client.sendall(HEADER)
            assert until(client, b"PLAIN AMQPLAIN").startswith(b"\1\0\0")
