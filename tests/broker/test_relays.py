"""Clients that follow no leader, at each broker of a cluster: the brokers that do not lead relay them."""

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from urllib.request import urlopen

import grpc
import pyarrow as pa
import pytest
import trustme
from pyarrow import flight

import penstock
from hostile.wire import Wire, message
from penstock.v1 import admin_pb2, messaging_pb2, streams_pb2
from support.broker import Broker
from support.issuer import Issuer
from support.plain_client import GUEST, SECONDS_MAX, Call, PlainClient, plain_client, refusal_of
from support.serving_cluster import NAMES, ServingCluster
from support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
LEADER = "penstock-leader"
FILES = ("certificate", "key")
MIB = 1 << 20
EVERYTHING = "mq.configure:*/* mq.write:*/* mq.read:*/*"


@pytest.fixture(scope="module")
def cluster(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    tokens = f'jwt_issuer = "{issuer.url}"\njwt_audience = "mq"\njwt_clock_skew_seconds = 0\n'
    (folder / "settings.toml").write_text(f'auth_backends = "local, jwt"\n{tokens}')
    with ServingCluster(folder, "--config", str(folder / "settings.toml")) as cluster:
        cluster.until_all_in_sync()
        yield cluster


@pytest.fixture
def other(cluster: ServingCluster) -> Broker:
    """Return a broker that does not lead."""
    leader = cluster.leader()
    return next(cluster.brokers[name] for name in NAMES if name != leader)


@pytest.fixture
def client(other: Broker) -> Iterator[PlainClient]:
    with plain_client(other.address) as client:
        yield client


def connections_at(broker: Broker) -> dict[str, int]:
    """Return the connections at a broker by their clients' addresses."""
    with plain_client(broker.address) as root:
        found = root.ask(root.admin.ListConnections, admin_pb2.ListConnectionsRequest()).connections
    return {each.peer: each.id for each in found}


@pytest.mark.parametrize("name", NAMES)
def test_a_plain_client_at_any_broker_does_everything(cluster: ServingCluster, name: str) -> None:
    leader = cluster.leader()
    hint = None if name == leader else cluster.brokers[leader].address
    queue, stream = f"queue-{name}", f"stream-{name}"
    with plain_client(cluster.brokers[name].address) as client:
        client.declare(queue)
        publishing = client.publishing()
        publishing.publish(queue, b"1", b"2", b"3")
        publishing.until_confirmed(3)
        assert publishing.headers().get(LEADER) == hint
        publishing.end()
        assert list(publishing.answers) == []

        got = client.get(queue)
        assert [one.body for one in got] == [b"1"]
        assert client.settle(queue, *got) == 1

        consuming = client.consuming(queue)
        came = consuming.deliveries(2)
        assert [one.body for one in came] == [b"2", b"3"]
        consuming.ack(*came)
        consuming.end()
        assert list(consuming.answers) == []
        client.publish(queue, b"4")
        assert client.purge(queue) == 1, "the others were acknowledged"

        client.declare_stream(stream)
        client.publish(stream, b"5", b"6")
        reading = client.reading(stream)
        assert [one.body for one in reading.deliveries(2)] == [b"5", b"6"]
        reading.end()


def test_large_messages_go_through_in_both_directions(client: PlainClient) -> None:
    client.declare("large")
    bodies = [bytes([number]) * (16 * MIB) for number in range(3)]

    client.publish("large", *bodies[:1])
    publishing = client.publishing()
    for body in bodies[1:]:
        publishing.publish("large", body)
    publishing.until_confirmed(2)
    publishing.end()

    for body in bodies:
        got = client.get("large")
        assert [one.body for one in got] == [body]
        client.settle("large", *got)


def test_streams_have_the_leaders_offsets_at_each_broker(other: Broker, client: PlainClient) -> None:
    client.declare_stream("listed")
    client.publish("listed", b"1", b"22")

    with penstock.connect(f"penstock://guest:guest@{other.address}/") as following:
        listed = following.admin.get_stream("listed")
    asked = client.ask(client.streams.GetOffsets, streams_pb2.GetOffsetsRequest(vhost="/", stream="listed"))

    assert (listed.message_count, listed.bytes) == (2, 3)
    assert [one.message_count for one in asked.partitions] == [2]


def test_each_broker_shows_the_messages_in_a_virtual_host(cluster: ServingCluster, client: PlainClient) -> None:
    def shown(broker: Broker) -> list[int]:
        with penstock.connect(f"penstock://guest:guest@{broker.address}/") as connection:
            return [each.ready_count for each in connection.admin.list_vhosts() if each.name == "/"]

    client.declare("shown")
    before = shown(cluster.brokers[cluster.leader()])
    client.publish("shown", b"1", b"2")

    for name in NAMES:
        assert shown(cluster.brokers[name]) == [before[0] + 2]


def test_what_a_connection_got_returns_to_the_queue_with_its_end(other: Broker, client: PlainClient) -> None:
    client.declare("got")
    client.publish("got", b"1")
    with plain_client(other.address) as leaving:
        assert len(leaving.get("got")) == 1
        assert client.get("got") == []

    eventually(lambda: [one.redelivered for one in client.get("got")], [True], SECONDS_MAX)


def test_a_consumer_that_its_client_cancels_ends_at_the_leader(client: PlainClient) -> None:
    client.declare("cancelled")
    client.publish("cancelled", b"1")
    consuming = client.consuming("cancelled")
    assert [one.body for one in consuming.deliveries(1)] == [b"1"]

    consuming.answers.cancel()

    eventually(lambda: [one.redelivered for one in client.get("cancelled")], [True], SECONDS_MAX)


def test_an_exclusive_queue_that_a_client_declares_at_any_broker_is_its_own(other: Broker, client: PlainClient) -> None:
    request = admin_pb2.DeclareQueueRequest(queue={"name": "own", "exclusive": True})
    with plain_client(other.address) as owner:
        owner.ask(owner.admin.DeclareQueue, request)
        owner.publish("own", b"1", b"2")
        got = owner.get("own")
        assert owner.settle("own", *got) == 1
        consuming = owner.consuming("own")
        assert [one.body for one in consuming.deliveries(1)] == [b"2"]
        consuming.end()
        assert list(consuming.answers) == []

        assert isinstance(refusal_of(lambda: client.get("own")), penstock.LockedError)
        assert owner.purge("own") == 1
        deletion = admin_pb2.DeleteQueueRequest(name="own", if_empty=True, if_unused=True)
        refusal = refusal_of(lambda: client.ask(client.admin.DeleteQueue, deletion))
        assert isinstance(refusal, penstock.LockedError)
        owner.ask(owner.admin.DeleteQueue, deletion)
        owner.ask(owner.admin.DeclareQueue, request)

    def is_gone() -> bool:
        return isinstance(refusal_of(lambda: client.get("own")), penstock.NotFoundError)

    eventually(is_gone, True, SECONDS_MAX)


def test_a_relayed_stream_goes_on_with_a_newer_token(issuer: Issuer, other: Broker) -> None:
    first, second = (
        (("authorization", f"Bearer {issuer.token(time.time() + more, EVERYTHING)}"),) for more in (10, 60)
    )
    request = admin_pb2.RefreshTokenRequest()
    with plain_client(other.address, first) as client, plain_client(other.address, second) as another:
        client.declare("renewed")
        publishing = client.publishing()
        publishing.publish("renewed", b"1")
        publishing.until_confirmed(1)
        without_streams = refusal_of(lambda: another.ask(another.admin.RefreshToken, request))
        assert isinstance(without_streams, penstock.PreconditionFailedError)

        client.metadata = second
        assert client.ask(client.admin.RefreshToken, request).expires_at_ms > 0

        another.metadata = first
        eventually(lambda: is_refused(another), True, SECONDS_MAX)
        publishing.publish("renewed", b"2")
        publishing.until_confirmed(1)
        publishing.end()
        assert list(publishing.answers) == []


def is_refused(client: PlainClient) -> bool:
    """Return whether the credentials of a client count no more."""
    try:
        client.get("renewed")
    except grpc.RpcError:
        return True
    return False


def test_refusals_are_those_of_the_leader(cluster: ServingCluster, other: Broker) -> None:
    with penstock.connect(other.uri()) as root:
        root.declare_queue("secret")
        root.admin.put_user("reader", "password")
        root.admin.set_permission("reader", "/", read="open", write="", configure="")

    def refused(broker: Broker, credentials: str) -> list[tuple[type, str]]:
        found = []
        with plain_client(broker.address, (("authorization", credentials),)) as client:
            for act in (lambda: client.get("secret"), lambda: client.publish("secret", b"1")):
                refusal = refusal_of(act)
                found.append((type(refusal), str(refusal)))
        return found

    leader = cluster.brokers[cluster.leader()]
    for wrong in ("Basic Z3Vlc3Q6d3Jvbmc=", "Bearer nothing", ""):
        at_leader = refused(leader, wrong)
        assert refused(other, wrong) == at_leader
        assert {kind for kind, _ in at_leader} == {penstock.NotAuthenticatedError}
    with plain_client(other.address, (("authorization", "Basic cmVhZGVyOnBhc3N3b3Jk"),)) as client:
        assert isinstance(refusal_of(lambda: client.get("secret")), penstock.AccessRefusedError)
        publishing = client.publishing()
        publishing.publish("secret", b"1")
        assert next(publishing.answers).rejected[0].code == grpc.StatusCode.PERMISSION_DENIED.value[0]
        publishing.end()
    with plain_client(other.address) as root_client:
        assert isinstance(refusal_of(lambda: root_client.get("no such queue")), penstock.NotFoundError)


def test_the_leader_lists_the_client_and_an_administrator_closes_its_connection_there(
    cluster: ServingCluster, other: Broker, client: PlainClient
) -> None:
    client.declare("closed")
    consuming = client.consuming("closed")
    next(consuming.answers)
    (address,) = set(connections_at(other)) & set(connections_at(cluster.brokers[cluster.leader()]))

    with plain_client(cluster.brokers[cluster.leader()].address) as root:
        number = connections_at(cluster.brokers[cluster.leader()])[address]
        root.ask(root.admin.CloseConnection, admin_pb2.CloseConnectionRequest(id=number))

    refusal = refusal_of(lambda: next(consuming.answers))
    assert isinstance(refusal, penstock.ConnectionLostError)
    assert "which led the virtual host" in str(refusal)
    assert client.get("closed") == [], "the next call has another relay"


def test_a_client_that_reads_nothing_is_bounded_and_holds_up_no_other_one(other: Broker, client: PlainClient) -> None:
    client.declare("unread")
    client.declare("read")
    for _ in range(8):
        client.publish("unread", *[bytes(MIB)] * 8)
    opening = messaging_pb2.ConsumeRequest(open={"queue": "unread"}).SerializeToString()
    before = relayed_bytes(other)
    with Wire(other.grpc, GUEST[0][1], window=100) as silent:
        silent.request("/penstock.v1.MessagingService/Consume", message(opening), flags=0)
        came = still(lambda: relayed_bytes(other) - before)

        client.publish("read", b"1")

        assert [one.body for one in client.get("read")] == [b"1"]
        assert MIB // 16 < came < 2 * MIB, "of 64 MiB, the rest waits at the leader"
    eventually(lambda: client.purge("unread"), 64, SECONDS_MAX)


def relayed_bytes(broker: Broker) -> int:
    """Return how many bytes other brokers have sent to one for its clients."""
    with urlopen(f"{broker.health}/metrics") as page:
        lines = page.read().decode().splitlines()
    name = "penstock_relay_received_bytes_total "
    return int(float(next(line for line in lines if line.startswith(name)).removeprefix(name)))


def still(look: Callable[[], int]) -> int:
    """Return a number once it has grown and grows no more."""
    seen = [0]

    def is_still() -> bool:
        seen.append(look())
        return len(seen) > 5 and len(set(seen[-5:])) == 1 and seen[-1] > 0

    eventually(is_still, True, SECONDS_MAX)
    return seen[-1]


def test_flight_of_pyarrow_is_relayed(client: PlainClient, other: Broker) -> None:
    client.declare_stream("flown")
    options = flight.FlightCallOptions(headers=[(name.encode(), value.encode()) for name, value in GUEST])
    rows = pa.table({"body": pa.array([b"1", b"2"], pa.binary())})
    descriptor = flight.FlightDescriptor.for_command(json.dumps({"vhost": "/", "stream": "flown"}))

    with flight.FlightClient(f"grpc://{other.address}") as flying:
        writer, results = flying.do_put(descriptor, rows.schema, options)
        writer.write_table(rows)
        writer.done_writing()
        assert results.read() is not None
        writer.close()
        ticket = flight.Ticket(json.dumps({"vhost": "/", "partition": "flown", "from": 1, "to": 3}))
        read = flying.do_get(ticket, options).read_all()

    assert read["body"].to_pylist() == [b"1", b"2"]


@pytest.mark.parametrize("native", [True, False], ids=["native", "pure"])
def test_our_client_that_does_not_follow_is_relayed(other: Broker, native: bool) -> None:
    name = f"staying-{native}"
    with penstock.connect(other.uri() + "?follow=false", native=native) as client:
        client.declare_queue(name)
        client.publish_many([b"1", b"2"], routing_key=name)
        assert [message.body for message in islice(client.consume(name, auto_ack=True), 2)] == [b"1", b"2"]


def test_relayed_calls_end_with_a_clear_status_when_the_leader_is_killed_and_a_new_call_works(
    cluster: ServingCluster,
) -> None:
    killed = cluster.leader()
    staying = cluster.brokers[next(name for name in NAMES if name != killed)]
    with plain_client(staying.address) as client:
        client.declare("survives")
        publishing, consuming = client.publishing(), client.consuming("survives")
        publishing.publish("survives", b"1")
        publishing.until_confirmed(1)
        next(consuming.answers)

        cluster.brokers[killed].kill()

        for call in (publishing, consuming):
            refusal = refusal_of(partial(list, call.answers))
            assert isinstance(refusal, penstock.ConnectionLostError)
            assert f"broker '{killed}'" in str(refusal)

        def publishes() -> bool:
            try:
                client.publish("survives", b"2")
            except grpc.RpcError:
                return False
            return True

        eventually(publishes, True, SECONDS_MAX)
        eventually(lambda: {one.body for one in client.get("survives", 10)} >= {b"1", b"2"}, True, SECONDS_MAX)
    cluster.start(killed)


def test_a_client_that_waits_for_headers_before_it_opens_a_call_is_relayed_as_well(client: PlainClient) -> None:
    client.declare("late")
    publishing = Call(client, client.messages.Publish)
    assert LEADER not in publishing.headers(), "it was not known yet"

    publishing.send(messaging_pb2.PublishRequest(open={}))
    publishing.publish("late", b"1")
    publishing.until_confirmed(1)
    publishing.end()

    assert list(publishing.answers) == []


def test_a_client_whose_certificate_names_its_user_is_relayed_over_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    broker, user = authority.issue_cert("localhost", "127.0.0.1"), authority.issue_cert("client", common_name="guest")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    broker.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "broker.pem"))
    settings = {f"{whose}tls_{name}": str(tmp_path / "broker.pem") for whose in ("", "cluster_") for name in FILES}
    settings |= {"tls_client_ca": str(tmp_path / "ca.pem"), "cluster_tls_ca": str(tmp_path / "ca.pem")}
    settings |= {"tls_client_auth": "optional", "tls_client_user": "cn"}
    lines = [f'{name} = "{value}"' for name, value in settings.items()]
    (tmp_path / "settings.toml").write_text("\n".join([*lines, "metrics_tls = false"]))
    chain = b"".join(pem.bytes() for pem in user.cert_chain_pems)
    known = grpc.ssl_channel_credentials(authority.cert_pem.bytes(), user.private_key_pem.bytes(), chain)
    unknown = grpc.ssl_channel_credentials(authority.cert_pem.bytes())

    with ServingCluster(tmp_path, "--config", str(tmp_path / "settings.toml")) as cluster:
        for name in NAMES:
            address = cluster.brokers[name].address
            with grpc.secure_channel(address, known) as channel:
                client = PlainClient(channel, ())
                client.declare(name)
                client.publish(name, b"1")
                assert [one.body for one in client.get(name)] == [b"1"]
            with grpc.secure_channel(address, unknown) as channel:
                refusal = refusal_of(partial(PlainClient(channel, ()).get, name))
                assert isinstance(refusal, penstock.NotAuthenticatedError)
