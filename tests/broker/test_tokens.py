"""Tokens and a server's word, end to end: with an identity provider of the test's own."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

import penstock
from penstock.v1 import admin_pb2, admin_pb2_grpc, messaging_pb2, messaging_pb2_grpc
from support import Broker
from support.issuer import Issuer, serving
from support.waiting import eventually

EVERYTHING = "mq.configure:*/* mq.write:*/* mq.read:*/* mq.tag:administrator"


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with serving() as started:
        yield started


@pytest.fixture(scope="module")
def broker(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("tokens")
    config = folder / "config.toml"
    config.write_text(
        'auth_backends = "local, jwt, http"\n'
        f'jwt_issuer = "{issuer.url}"\njwt_audience = "mq"\njwt_clock_skew_seconds = 0\n'
        f'http_auth_user_url = "{issuer.url}/user"\nhttp_auth_vhost_url = "{issuer.url}/vhost"\n'
        f'http_auth_resource_url = "{issuer.url}/resource"\n'
    )
    with Broker(folder / "data", "--config", str(config)) as started:
        yield started


@pytest.fixture
def channel(broker: Broker) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(broker.address) as opened:
        yield opened


def bearer(token: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")]


def test_a_bearer_does_what_the_scopes_say(issuer: Issuer, channel: grpc.Channel) -> None:
    admin = admin_pb2_grpc.AdminServiceStub(channel)
    wanted = admin_pb2.DeclareQueueRequest(queue=admin_pb2.Queue(name="mine", durable=True))
    can = issuer.token(time.time() + 60, "mq.configure:%2F/mi*")
    cannot = issuer.token(time.time() + 60, "mq.read:%2F/*")

    assert admin.DeclareQueue(wanted, metadata=bearer(can)).name == "mine"
    with pytest.raises(grpc.RpcError) as refused:
        admin.DeclareQueue(wanted, metadata=bearer(cannot))

    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_a_token_in_the_place_of_a_password_lets_in(issuer: Issuer, broker: Broker) -> None:
    token = issuer.token(time.time() + 60, EVERYTHING)

    with penstock.connect(broker.uri(user="whoever", password=token)) as connection:
        connection.declare_queue("by-token")
        connection.publish(b"hello", routing_key="by-token")
        message = connection.get("by-token")
        assert message is not None
        message.ack()


def test_a_stream_ends_with_its_token_and_goes_on_with_a_newer_one(issuer: Issuer, channel: grpc.Channel) -> None:
    """Each confirm asks for the next batch, until the stream ends: only the broker says when."""
    admin, messages = admin_pb2_grpc.AdminServiceStub(channel), messaging_pb2_grpc.MessagingServiceStub(channel)
    first, second = (issuer.token(time.time() + seconds, EVERYTHING) for seconds in (3, 6))
    wanted = threading.Semaphore(1)

    def requests() -> Iterator[messaging_pb2.PublishRequest]:
        yield messaging_pb2.PublishRequest(open=messaging_pb2.PublishOpen())
        batch = messaging_pb2.PublishBatch(exchange="amq.fanout", messages=[messaging_pb2.Message(body=b"x")])
        while wanted.acquire(timeout=60):
            yield messaging_pb2.PublishRequest(batch=batch)

    def has_ended(token: str) -> bool:
        try:
            admin.GetStatus(admin_pb2.GetStatusRequest(), metadata=bearer(token))
        except grpc.RpcError as refused:
            return bool(refused.code() is grpc.StatusCode.UNAUTHENTICATED)
        return False

    stream = messages.Publish(requests(), metadata=bearer(first), timeout=60)
    next(stream)
    assert admin.RefreshToken(admin_pb2.RefreshTokenRequest(), metadata=bearer(second)).expires_at_ms > 0
    while not has_ended(first):
        wanted.release()
        next(stream)
    wanted.release()
    next(stream)

    with pytest.raises(grpc.RpcError) as ended:
        publish_until_it_ends(stream, wanted)

    assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert has_ended(second)


def publish_until_it_ends(stream: Iterator[messaging_pb2.PublishResponse], wanted: threading.Semaphore) -> None:
    wanted.release()
    for _ in stream:
        wanted.release()


def test_the_server_s_word_counts_when_nobody_else_knows_somebody(issuer: Issuer, broker: Broker) -> None:
    issuer.answers.update({"/user": "allow", "/vhost": "allow", "/resource": "allow"})
    issuer.questions.clear()

    with penstock.connect(broker.uri(user="otto", password="secret")) as otto:
        otto.declare_queue("ottos")

    assert [path for path, _ in issuer.questions] == ["/user", "/vhost", "/resource"]
    assert issuer.questions[2][1]["permission"] == "configure"


def test_local_users_come_first(issuer: Issuer, broker: Broker) -> None:
    issuer.questions.clear()

    with penstock.connect(broker.uri()) as guest:
        guest.list_queues()

    assert issuer.questions == []


def test_no_secret_is_in_the_log(issuer: Issuer, broker: Broker) -> None:
    token = issuer.token(time.time() + 60, EVERYTHING)
    issuer.answers.clear()
    with pytest.raises(penstock.NotAuthenticatedError):
        penstock.connect(broker.uri(user="nobody", password="a-wrong-password"))
    penstock.connect(broker.uri(user="x", password=token)).close()

    eventually(lambda: "keys of tokens fetched" in broker.log, True)
    assert token not in broker.log
    assert "a-wrong-password" not in broker.log


def test_a_clash_of_settings_is_told_before_anything_starts(tmp_path: Path) -> None:
    from penstock.node.config import ConfigurationError, load_settings

    for settings in (
        {"auth_backends": "ldap"},
        {"auth_backends": "jwt", "jwt_issuer": "https://a"},
        {"auth_backends": "jwt", "jwt_audience": "mq"},
        {"auth_backends": "http"},
        {"auth_backends": ""},
    ):
        with pytest.raises(ConfigurationError, match="auth"):
            load_settings(None, settings, {})
