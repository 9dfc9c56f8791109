"""Tokens and HTTP authentication end to end, with the test's own identity provider."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest
from pyarrow import flight

import penstock
from penstock.v1 import admin_pb2, admin_pb2_grpc, messaging_pb2, messaging_pb2_grpc, streams_pb2, streams_pb2_grpc
from support import Broker
from support.issuer import Issuer
from support.waiting import eventually

SECONDS_MAX = 60
EVERYTHING = "mq.configure:*/* mq.write:*/* mq.read:*/* mq.tag:administrator"


@pytest.fixture(scope="module")
def broker(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("tokens")
    config = folder / "config.toml"
    config.write_text(
        'auth_backends = "local, jwt, http"\n'
        f'jwt_issuer = "{issuer.url}"\njwt_audience = "mq"\njwt_clock_skew_seconds = 0\n'
        f'http_auth_user_url = "{issuer.url}/user"\nhttp_auth_vhost_url = "{issuer.url}/vhost"\n'
        f'http_auth_resource_url = "{issuer.url}/resource"\nhttp_auth_topic_url = "{issuer.url}/topic"\n'
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
    """Each confirm triggers the next batch, until the broker ends the stream."""
    admin, messages = admin_pb2_grpc.AdminServiceStub(channel), messaging_pb2_grpc.MessagingServiceStub(channel)
    first, second = (issuer.token(time.time() + seconds, EVERYTHING) for seconds in (6, 16))
    wanted = threading.Semaphore(1)

    def requests() -> Iterator[messaging_pb2.PublishRequest]:
        yield messaging_pb2.PublishRequest(open=messaging_pb2.PublishOpen())
        batch = messaging_pb2.PublishBatch(exchange="amq.fanout", messages=[messaging_pb2.Message(body=b"x")])
        while wanted.acquire(timeout=60):
            yield messaging_pb2.PublishRequest(batch=batch)

    stream = messages.Publish(requests(), metadata=bearer(first), timeout=60)
    next(stream)
    assert admin.RefreshToken(admin_pb2.RefreshTokenRequest(), metadata=bearer(second)).expires_at_ms > 0
    while not has_ended(channel, first):
        wanted.release()
        next(stream)
    wanted.release()
    next(stream)

    with pytest.raises(grpc.RpcError) as ended:
        publish_until_it_ends(stream, wanted)

    assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert has_ended(channel, second)


def publish_until_it_ends(stream: Iterator[messaging_pb2.PublishResponse], wanted: threading.Semaphore) -> None:
    wanted.release()
    for _ in stream:
        wanted.release()


def has_ended(channel: grpc.Channel, token: str) -> bool:
    try:
        admin_pb2_grpc.AdminServiceStub(channel).GetStatus(admin_pb2.GetStatusRequest(), metadata=bearer(token))
    except grpc.RpcError as refused:
        return bool(refused.code() is grpc.StatusCode.UNAUTHENTICATED)
    return False


class Stream:
    """A stream that only opens, until it is closed or the broker ends it."""

    def __init__(self, method: Any, opening: object, token: str) -> None:
        self.closed = threading.Event()
        self.responses: Any = method(self._requests(opening), metadata=bearer(token), timeout=SECONDS_MAX)

    def _requests(self, opening: object) -> Iterator[object]:
        yield opening
        self.closed.wait(SECONDS_MAX)

    def end(self) -> grpc.RpcError:
        """Read on until the broker ends it."""
        try:
            with pytest.raises(grpc.RpcError) as ended:
                for _ in self.responses:
                    pass
        finally:
            self.closed.set()
        return ended.value


def open_streams(channel: grpc.Channel, token: str) -> dict[str, Stream]:
    """Open an idle stream of each kind."""
    messages, streams = messaging_pb2_grpc.MessagingServiceStub(channel), streams_pb2_grpc.StreamServiceStub(channel)
    consume = messaging_pb2.ConsumeRequest(open=messaging_pb2.ConsumeOpen(queue="held"))
    read = streams_pb2.ReadRequest(open=streams_pb2.ReadOpen(partition="flow"))
    publish = messaging_pb2.PublishRequest(open=messaging_pb2.PublishOpen())
    opened = {
        "consume": Stream(messages.Consume, consume, token),
        "read": Stream(streams.Read, read, token),
        "publish": Stream(messages.Publish, publish, token),
    }
    for name in ("consume", "read"):
        next(opened[name].responses)
    return opened


@pytest.fixture
def held(broker: Broker) -> Iterator[penstock.Connection]:
    """With a queue of one message, and a stream."""
    with penstock.connect(broker.uri()) as guest:
        guest.declare_queue("held")
        guest.declare_stream("flow")
        guest.publish(b"to be held", routing_key="held")
        yield guest
        guest.delete_queue("held")
        guest.delete_stream("flow")


def counts(connection: penstock.Connection) -> tuple[int, int]:
    (queue,) = (queue for queue in connection.admin.list_queues() if queue.name == "held")
    return queue.ready_count, queue.unacked_count


def test_every_stream_ends_with_its_token_and_what_a_consumer_held_returns(
    issuer: Issuer, channel: grpc.Channel, held: penstock.Connection
) -> None:
    token = issuer.token(time.time() + 8, EVERYTHING)
    streams = open_streams(channel, token)
    delivered = next(streams["consume"].responses)
    assert delivered.deliveries.deliveries[0].body == b"to be held"

    ends = {name: stream.end() for name, stream in streams.items()}

    assert {name: end.code() for name, end in ends.items()} == dict.fromkeys(ends, grpc.StatusCode.UNAUTHENTICATED)
    assert all("new token" in str(end.details()) for end in ends.values())
    eventually(lambda: counts(held), (1, 0))
    returned = held.get("held")
    assert returned is not None
    assert returned.redelivered
    returned.ack()


def test_a_token_that_is_renewed_in_time_keeps_every_stream_open(
    issuer: Issuer, channel: grpc.Channel, held: penstock.Connection
) -> None:
    first, second = (issuer.token(time.time() + seconds, EVERYTHING) for seconds in (8, 3_600))
    streams = open_streams(channel, first)
    admin = admin_pb2_grpc.AdminServiceStub(channel)
    eventually(lambda: refreshed(admin, second), True)
    eventually(lambda: has_ended(channel, first), True, SECONDS_MAX)

    held.publish(b"after the first token", routing_key="held")
    bodies: list[bytes] = []
    while len(bodies) < 2:
        bodies += [one.body for one in next(streams["consume"].responses).deliveries.deliveries]

    assert bodies == [b"to be held", b"after the first token"]
    for stream in streams.values():
        stream.closed.set()
        stream.responses.cancel()


def refreshed(admin: admin_pb2_grpc.AdminServiceStub, token: str) -> bool:
    """Return whether the token was renewed: a publish stream may not be known yet, as its opening has no answer."""
    return bool(admin.RefreshToken(admin_pb2.RefreshTokenRequest(), metadata=bearer(token)).expires_at_ms)


@pytest.mark.parametrize("scheme", ["Bearer", "Basic"])
def test_a_table_that_is_read_over_flight_ends_with_its_token(
    issuer: Issuer, broker: Broker, channel: grpc.Channel, held: penstock.Connection, scheme: str
) -> None:
    """The table is far larger than the buffers for a client that does not read."""
    with penstock.connect(broker.uri(), durability="os") as guest:
        for _ in range(120):
            guest.stream("flow").publish(b"x" * 1_000_000)
    token = issuer.token(time.time() + 8, EVERYTHING)
    shown = token if scheme == "Bearer" else base64.b64encode(f"anna:{token}".encode()).decode()
    with flight.FlightClient(f"grpc://{broker.address}") as client:
        options = flight.FlightCallOptions(headers=[(b"authorization", f"{scheme} {shown}".encode())])
        reader = client.do_get(flight.Ticket(b'{"partition": "flow"}'), options)
        reader.read_chunk()
        eventually(lambda: has_ended(channel, token), True, SECONDS_MAX)

        with pytest.raises(flight.FlightUnauthenticatedError, match="new token"):
            reader.read_all()


def test_a_lease_that_is_read_over_flight_ends_with_its_token(
    issuer: Issuer, broker: Broker, channel: grpc.Channel, held: penstock.Connection
) -> None:
    """It was read on to its end, because only reads of streams were watched."""
    with penstock.connect(broker.uri(), durability="os") as guest:
        for _ in range(120):
            guest.publish(b"x" * 1_000_000, routing_key="held")
        guest.reserve_lease("held", "owner", 1)
    token = issuer.token(time.time() + 8, EVERYTHING)
    with flight.FlightClient(f"grpc://{broker.address}") as client:
        options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])
        reader = client.do_get(flight.Ticket(b'{"queue": "held", "owner": "owner", "lease": 1}'), options)
        reader.read_chunk()
        eventually(lambda: has_ended(channel, token), True, SECONDS_MAX)

        with pytest.raises(flight.FlightUnauthenticatedError, match="new token"):
            reader.read_all()


@pytest.mark.parametrize("stage", [{}, {"stage": "rows", "batch": 1}])
def test_an_upload_over_flight_ends_with_its_token(
    issuer: Issuer, broker: Broker, channel: grpc.Channel, held: penstock.Connection, stage: dict[str, object]
) -> None:
    """Rows were staged for minutes after the end of the token."""
    token = issuer.token(time.time() + 8, EVERYTHING)
    rows = pa.record_batch({"body": pa.array([b"x"], pa.binary())})
    descriptor = flight.FlightDescriptor.for_command(json.dumps({"stream": "flow", **stage}))
    with flight.FlightClient(f"grpc://{broker.address}") as client:
        options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])
        writer, reader = client.do_put(descriptor, rows.schema, options)
        writer.write_batch(rows)
        assert reader.read() is not None
        eventually(lambda: has_ended(channel, token), True, SECONDS_MAX)

        with pytest.raises(flight.FlightUnauthenticatedError, match="new token"):
            write_until_it_ends(writer, rows)


def write_until_it_ends(writer: flight.FlightStreamWriter, rows: pa.RecordBatch) -> None:
    until = time.monotonic() + SECONDS_MAX
    try:
        while time.monotonic() < until:
            writer.write_batch(rows)
            time.sleep(0.05)
    finally:
        writer.close()


@pytest.mark.parametrize("native", [True, False])
def test_a_client_learns_that_its_token_has_ended(
    issuer: Issuer, broker: Broker, held: penstock.Connection, native: bool
) -> None:
    token = issuer.token(time.time() + 8, EVERYTHING)
    with penstock.connect(broker.uri(user="anna", password=token), native=native) as anna:
        messages = iter(anna.consume("held", idle_timeout=SECONDS_MAX))
        next(messages)

        with pytest.raises(penstock.NotAuthenticatedError, match="new token"):
            next(messages)


def test_the_server_s_word_counts_when_nobody_else_knows_somebody(issuer: Issuer, broker: Broker) -> None:
    issuer.answers.update({"/user": "allow", "/vhost": "allow", "/resource": "allow"})
    issuer.questions.clear()

    with penstock.connect(broker.uri(user="otto", password="secret")) as otto:
        otto.declare_queue("ottos")

    assert [path for path, _ in issuer.questions] == ["/user", "/vhost", "/resource"]
    assert issuer.questions[2][1]["permission"] == "configure"


def test_the_server_is_asked_about_each_routing_key_once(issuer: Issuer, broker: Broker) -> None:
    issuer.answers.update({"/user": "allow", "/vhost": "allow", "/resource": "allow", "/topic": "allow"})
    issuer.questions.clear()

    with penstock.connect(broker.uri(user="tina", password="secret")) as tina:
        for key in ("a.b", "c.d", "a.b"):
            tina.publish(b"x", exchange="amq.topic", routing_key=key)
        issuer.answers["/topic"] = "deny"
        with pytest.raises(penstock.AccessRefusedError, match="routing key"):
            tina.publish(b"x", exchange="amq.topic", routing_key="e.f")
        tina.publish(b"x", exchange="amq.fanout", routing_key="e.f")

    asked = [form for path, form in issuer.questions if path == "/topic"]
    assert [form["routing_key"] for form in asked] == ["a.b", "c.d", "e.f"]
    assert asked[0]["variable_map.username"] == "tina"


def test_the_third_part_of_a_scope_says_which_routing_keys(issuer: Issuer, broker: Broker) -> None:
    scope = "mq.write:*/amq.topic/{username}.* mq.read:*/amq.topic/public.* mq.configure:*/* mq.write:*/mine"
    token = issuer.token(time.time() + 60, scope)

    with penstock.connect(broker.uri(user="anna", password=token)) as anna:
        anna.publish(b"x", exchange="amq.topic", routing_key="anna.x")
        with pytest.raises(penstock.AccessRefusedError, match="routing key"):
            anna.publish(b"x", exchange="amq.topic", routing_key="otto.x")
        anna.declare_queue("mine")
        anna.bind_queue("mine", "amq.topic", "public.#")
        with pytest.raises(penstock.AccessRefusedError, match="routing key"):
            anna.bind_queue("mine", "amq.topic", "secret.#")


def test_local_users_come_first(issuer: Issuer, broker: Broker) -> None:
    issuer.questions.clear()

    with penstock.connect(broker.uri()) as guest:
        guest.admin.list_queues()

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
