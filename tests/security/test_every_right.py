"""Every method of a virtual host with callers that have one right in it: each right opens its own methods alone."""

import base64
import json
from collections.abc import Callable, Iterator
from enum import Enum

import grpc
import pyarrow as pa
import pytest
from pyarrow import flight

import penstock
from penstock.v1 import messaging_pb2 as messaging
from penstock.v1 import messaging_pb2_grpc
from security.walk import METHODS, SECRET, Metadata, Needs, call, methods
from support import Broker

VHOST = "walked-by-rights"


class Right(Enum):
    CONFIGURE = "configure"
    WRITE = "write"
    READ = "read"


ANY = frozenset(Right)
CONFIGURE, WRITE, READ, SEVERAL = {Right.CONFIGURE}, {Right.WRITE}, {Right.READ}, set[Right]()

# The rights each of which is enough. No single right is enough for a binding: it needs two.
ENOUGH: dict[str, set[Right] | frozenset[Right]] = {
    "GetVhostLimits": ANY,
    "ListPolicies": ANY,
    "DeclareQueue": CONFIGURE,
    "ListQueues": ANY,
    "PurgeQueue": READ,
    "DeclareExchange": CONFIGURE,
    "ListExchanges": ANY,
    "DeleteExchange": CONFIGURE,
    "Bind": SEVERAL,
    "ListBindings": ANY,
    "Unbind": SEVERAL,
    "Publish": ANY,  # the stream; each exchange is asked for when a message goes to it
    "Consume": READ,
    "Get": READ,
    "Peek": READ,
    "Settle": READ,
    "ReserveLease": READ,
    "ListLeases": READ,
    "AckLeases": READ,
    "ReleaseLeases": READ,
    "DeclareStream": CONFIGURE,
    "ListStreams": ANY,
    "GetOffsets": ANY,
    "Read": READ,
    "StoreOffset": READ,
    "ListGroups": ANY,
    "DeleteGroup": READ,
    "TrimStream": CONFIGURE,
    "GetProducer": ANY,
    "ListProducers": ANY,
    "Stage": WRITE,
    "PublishStaged": WRITE,
    "DiscardStaged": WRITE,
    "ListStages": ANY,
    "DeleteStage": WRITE,
    "DeleteStream": CONFIGURE,
    "DeleteQueue": CONFIGURE,
}


def credentials(right: Right) -> Metadata:
    return (("authorization", "Basic " + base64.b64encode(f"only-{right.value}:{SECRET}".encode()).decode()),)


@pytest.fixture(scope="module")
def owner(broker: Broker) -> Iterator[penstock.Connection]:
    """With a virtual host and a user for each right in it."""
    with penstock.connect(broker.uri()) as root:
        root.admin.create_vhost(VHOST)
        root.admin.set_permission("guest", VHOST, ".*", ".*", ".*")
        for right in Right:
            user = f"only-{right.value}"
            root.admin.put_user(user, SECRET)
            patterns = [".*" if right is each else "" for each in Right]
            root.admin.set_permission(user, VHOST, *patterns)
        with penstock.connect(broker.uri(VHOST)) as connection:
            yield connection
        for right in Right:
            root.admin.delete_user(f"only-{right.value}")
        root.admin.delete_vhost(VHOST)


def prepare(owner: penstock.Connection) -> None:
    """Everything that a method is about is there, also when the method before has deleted it."""
    for name in ("kept", "walked"):
        owner.declare_queue(name, durable=True)
    owner.declare_exchange("walked", "direct", durable=True)
    owner.bind_queue("kept", "amq.direct", "walked")
    owner.declare_stream("flow")
    owner.stage("walked", exchange="amq.fanout").publish(1, [])


def test_the_rights_that_every_method_of_a_virtual_host_needs_are_written_down() -> None:
    assert set(ENOUGH) == {name for name, method in METHODS.items() if method.needs is Needs.THE_VHOST}


def test_each_right_opens_its_own_methods_and_no_others(broker: Broker, owner: penstock.Connection) -> None:
    paths = {name: (f"/{service}/{name}", is_stream) for service, name, is_stream in methods()}
    found: dict[str, set[Right]] = {}
    with grpc.insecure_channel(broker.address) as channel:
        for name, enough in ENOUGH.items():
            prepare(owner)
            path, is_stream = paths[name]
            request = METHODS[name].request(VHOST)
            found[name] = set()
            # Those that are refused come first: they must find what the method is about.
            for right in sorted(Right, key=lambda each: each in enough):
                code = call(channel, path, request, credentials(right), is_stream=is_stream)
                if code is not grpc.StatusCode.PERMISSION_DENIED:
                    assert code in (grpc.StatusCode.OK, METHODS[name].ends), f"{name}: {code} for {right}"
                    found[name].add(right)

    assert found == {name: set(enough) for name, enough in ENOUGH.items()}


@pytest.mark.parametrize("right", Right)
def test_only_the_right_to_write_publishes(broker: Broker, owner: penstock.Connection, right: Right) -> None:
    prepare(owner)
    requests = [
        messaging.PublishRequest(open=messaging.PublishOpen(vhost=VHOST)),
        messaging.PublishRequest(
            batch=messaging.PublishBatch(exchange="amq.direct", messages=[messaging.Message(body=b"x")])
        ),
    ]
    with grpc.insecure_channel(broker.address) as channel:
        stub = messaging_pb2_grpc.MessagingServiceStub(channel)
        answers = list(stub.Publish(iter(requests), metadata=credentials(right), timeout=30))

    rejected = [span.code for answer in answers for span in answer.rejected]
    confirmed = [span.first for answer in answers for span in answer.confirmed]
    denied = grpc.StatusCode.PERMISSION_DENIED.value[0]
    assert (rejected, confirmed) == (([], [1]) if right is Right.WRITE else ([denied], []))


def get(client: flight.FlightClient, options: flight.FlightCallOptions, **ticket: object) -> None:
    client.do_get(flight.Ticket(json.dumps({"vhost": VHOST, **ticket}).encode()), options).read_all()


def put(client: flight.FlightClient, options: flight.FlightCallOptions, **target: object) -> None:
    rows = pa.record_batch({"body": pa.array([b"x"], pa.binary())})
    descriptor = flight.FlightDescriptor.for_command(json.dumps({"vhost": VHOST, **target}))
    writer, _ = client.do_put(descriptor, rows.schema, options)
    writer.write_batch(rows)
    writer.close()


def describe(client: flight.FlightClient, options: flight.FlightCallOptions) -> None:
    client.get_flight_info(flight.FlightDescriptor.for_command(json.dumps({"vhost": VHOST, "stream": "flow"})), options)


FLIGHT: dict[str, tuple[Callable[[flight.FlightClient, flight.FlightCallOptions], None], set[Right]]] = {
    "GetFlightInfo": (describe, set(ANY)),
    "DoGet of a partition": (lambda client, options: get(client, options, partition="flow"), READ),
    "DoGet of a lease": (lambda client, options: get(client, options, queue="kept", owner="walker", lease=1), READ),
    "DoPut to a stream": (lambda client, options: put(client, options, stream="flow"), WRITE),
    "DoPut to an exchange": (lambda client, options: put(client, options, exchange="amq.direct"), WRITE),
    "DoPut to a stage": (
        lambda client, options: put(client, options, exchange="amq.fanout", stage="walked", batch=2),
        WRITE,
    ),
}


@pytest.mark.parametrize("name", FLIGHT)
def test_each_right_opens_its_own_calls_of_arrow_flight(broker: Broker, owner: penstock.Connection, name: str) -> None:
    make, enough = FLIGHT[name]
    prepare(owner)
    owner.publish(b"x", routing_key="kept")
    owner.reserve_lease("kept", "walker", 1)
    found = set()
    with flight.FlightClient(f"grpc://{broker.address}") as client:
        for right in Right:
            ((_, header),) = credentials(right)
            options = flight.FlightCallOptions(headers=[(b"authorization", header.encode())], timeout=30)
            try:
                make(client, options)
            except flight.FlightUnauthorizedError:
                continue
            found.add(right)

    assert found == enough
