"""Who logs in over AMQP: certificates, tokens as passwords, and newer tokens on an open connection, with pika."""

import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
import trustme
from pika.exceptions import AMQPConnectionError, AuthenticationError, ConnectionClosedByBroker

import penstock
from support import Broker
from support.broker import free_ports
from support.issuer import Issuer, serving

HOST = "127.0.0.1"
SECONDS_MAX = 30
EVERYTHING = "mq.configure:*/* mq.write:*/* mq.read:*/*"


def settings_of_tls(folder: Path, authority: trustme.CA, client_user: str) -> Path:
    """Write certificates and return the file of settings with which a broker asks clients for theirs."""
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    server = authority.issue_cert(HOST, "localhost")
    server.private_key_pem.write_to_path(str(folder / "server.key"))
    (folder / "server.crt").write_bytes(b"".join(blob.bytes() for blob in server.cert_chain_pems))
    config = folder / "broker.toml"
    config.write_text(
        f'tls_certificate = "{folder}/server.crt"\ntls_key = "{folder}/server.key"\n'
        f'tls_client_ca = "{folder}/ca.pem"\ntls_client_auth = "optional"\ntls_client_user = "{client_user}"\n'
    )
    return config


PASSWORDS_ALONE, WITH_EXTERNAL = b"PLAIN AMQPLAIN", b"PLAIN AMQPLAIN EXTERNAL"


@pytest.mark.parametrize(
    ("client_user", "name", "mechanisms"),
    [
        ("none", "guest", PASSWORDS_ALONE),
        ("cn", "guest", WITH_EXTERNAL),
        ("cn", "nobody", PASSWORDS_ALONE),
        ("cn", None, PASSWORDS_ALONE),
        ("san_dns", "nobody", WITH_EXTERNAL),
    ],
)
def test_external_is_offered_where_a_certificate_names_a_user(
    tmp_path: Path, client_user: str, name: str | None, mechanisms: bytes
) -> None:
    """Clients such as py-amqp choose it whenever it is offered, although they have a password."""
    authority, port = trustme.CA(), free_ports(1)[0]
    config = settings_of_tls(tmp_path, authority, client_user)
    shows = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    authority.issue_cert("guest", common_name=name).configure_cert(shows)
    options = ("--config", str(config), "--amqp", f"{HOST}:{port}")

    with (
        Broker(tmp_path / "data", *options, trust=shows) as broker,
        socket.create_connection((HOST, port)) as plain,
        shows.wrap_socket(plain, server_hostname=HOST) as client,
    ):
        client.sendall(b"AMQP\0\0\x09\x01")
        greeting = client.recv(4096)
        counts = broker.scrape()

    assert len(mechanisms).to_bytes(4, "big") + mechanisms in greeting
    assert "penstock_log_ins_refused_total 0" in counts


def test_a_certificate_logs_in_by_external(tmp_path: Path) -> None:
    authority, port = trustme.CA(), free_ports(1)[0]
    config = settings_of_tls(tmp_path, authority, "cn")
    trust = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    shows = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    authority.issue_cert("anna@example.com", common_name="anna").configure_cert(shows)

    def parameters(context: ssl.SSLContext) -> pika.ConnectionParameters:
        tls, credentials = pika.SSLOptions(context, HOST), pika.credentials.ExternalCredentials()
        return pika.ConnectionParameters(
            HOST, port, ssl_options=tls, credentials=credentials, socket_timeout=SECONDS_MAX, connection_attempts=1
        )

    options = ("--config", str(config), "--amqp", f"{HOST}:{port}")
    with Broker(tmp_path / "data", *options, trust=trust) as broker:
        with pytest.raises(AuthenticationError):  # the broker does not offer the mechanism
            pika.BlockingConnection(parameters(shows))
        with penstock.connect(f"penstocks://guest:guest@{broker.address}/?ca={tmp_path}/ca.pem") as root:
            root.admin.put_user("anna", "another way in")
            root.admin.set_permission("anna", "/", ".*", "", "")
        with pika.BlockingConnection(parameters(shows)) as connection:
            assert connection.channel().queue_declare("annas").method.queue == "annas"
        with pytest.raises(AMQPConnectionError):
            pika.BlockingConnection(parameters(trust))


@pytest.fixture
def issuer_and_port(tmp_path: Path) -> Iterator[tuple[Issuer, int]]:
    port = free_ports(1)[0]
    with serving() as issuer:
        config = tmp_path / "config.toml"
        config.write_text(
            'auth_backends = "local, jwt"\n'
            f'jwt_issuer = "{issuer.url}"\njwt_audience = "mq"\njwt_clock_skew_seconds = 0\n'
        )
        with Broker(tmp_path / "data", "--config", str(config), "--amqp", f"{HOST}:{port}"):
            yield issuer, port


def open_with(token: str, port: int) -> pika.BlockingConnection:
    credentials = pika.PlainCredentials("whoever", token)
    return pika.BlockingConnection(pika.ConnectionParameters(HOST, port, credentials=credentials))


def test_a_token_is_a_password_and_a_newer_one_takes_its_place(issuer_and_port: tuple[Issuer, int]) -> None:
    issuer, port = issuer_and_port
    begun = time.time()
    with open_with(issuer.token(begun + 10, EVERYTHING), port) as connection:
        channel = connection.channel()
        channel.queue_declare("jobs", auto_delete=True)
        connection.update_secret(issuer.token(begun + 600, EVERYTHING), "the first one is soon over")
        while time.time() < begun + 11:
            connection.process_data_events(time_limit=0.5)
        channel.confirm_delivery()
        channel.basic_publish("", "jobs", b"hello", mandatory=True)
        assert channel.basic_get("jobs", auto_ack=True)[2] == b"hello"

        with pytest.raises(ConnectionClosedByBroker, match=r"530.*New secret was refused by one of the backends"):
            connection.update_secret(issuer.token(begun + 600, EVERYTHING, sub="ben"), "another user")


def test_a_connection_with_a_password_takes_any_secret_and_goes_on(issuer_and_port: tuple[Issuer, int]) -> None:
    """Its log-in does not expire, so there is nothing to renew. RabbitMQ answers in the same way."""
    issuer, port = issuer_and_port
    soon_over = time.time() + 5
    with pika.BlockingConnection(pika.ConnectionParameters(HOST, port)) as connection:
        for secret in ("no password of this user", issuer.token(soon_over, EVERYTHING, sub="guest")):
            connection.update_secret(secret, "a test of a client")
        while time.time() < soon_over + 1:
            connection.process_data_events(time_limit=0.5)
        channel = connection.channel()
        channel.queue_declare("kept", auto_delete=True)
        channel.confirm_delivery()
        channel.basic_publish("", "kept", b"hello", mandatory=True)
        assert channel.basic_get("kept", auto_ack=True)[2] == b"hello"


def test_a_password_does_not_take_the_place_of_a_token(issuer_and_port: tuple[Issuer, int]) -> None:
    issuer, port = issuer_and_port
    token = issuer.token(time.time() + 600, EVERYTHING, sub="guest")
    credentials = pika.PlainCredentials("guest", token)
    with (
        pika.BlockingConnection(pika.ConnectionParameters(HOST, port, credentials=credentials)) as connection,
        pytest.raises(ConnectionClosedByBroker, match=r"530.*New secret was refused by one of the backends"),
    ):
        connection.update_secret("guest", "a password, which never expires")


def test_a_connection_ends_with_its_token(issuer_and_port: tuple[Issuer, int]) -> None:
    issuer, port = issuer_and_port
    connection = open_with(issuer.token(time.time() + 10, EVERYTHING), port)
    with pytest.raises(ConnectionClosedByBroker) as ended:
        connection.process_data_events(time_limit=SECONDS_MAX)

    assert ended.value.reply_code == 320
