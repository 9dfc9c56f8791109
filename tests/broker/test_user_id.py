"""The property `user_id` is the name of the user who published, unless that user may impersonate others."""

import base64
import json
from collections.abc import Iterator

import grpc
import pyarrow as pa
import pytest
from pyarrow import flight

import penstock
from penstock.v1 import message_pb2, messaging_pb2, staging_pb2, staging_pb2_grpc
from support import Broker

REFUSED = "user_id property set to 'guest' but authenticated user was 'anna'"
BASIC = [("authorization", "Basic " + base64.b64encode(b"anna:secret").decode())]


@pytest.fixture
def admin(broker: Broker, vhost: str) -> Iterator[penstock.Connection]:
    with penstock.connect(broker.uri(vhost)) as connection:
        connection.admin.put_user("anna", "secret")
        connection.admin.set_permission("anna", vhost, ".*", ".*", ".*")
        connection.declare_queue("jobs")
        connection.declare_stream("events")
        yield connection
        connection.admin.delete_user("anna")


def as_user(user: str) -> penstock.Properties:
    return penstock.Properties(user_id=user)


@pytest.mark.parametrize("native", [True, False], ids=["native", "pure"])
def test_a_message_with_another_users_name_is_refused_and_others_are_not(
    broker: Broker, vhost: str, admin: penstock.Connection, native: bool
) -> None:
    with penstock.connect(broker.uri(vhost, "anna", "secret"), native=native) as anna:
        with pytest.raises(penstock.PreconditionFailedError, match=REFUSED):
            anna.publish(b"forged", routing_key="jobs", properties=as_user("guest"))
        anna.publish(b"hers", routing_key="jobs", properties=as_user("anna"))
        anna.publish(b"unsigned", routing_key="jobs", properties=penstock.Properties(app_id="guest"))

        admin.admin.put_user("anna", None, ["impersonator"])
        anna.publish(b"for guest", routing_key="jobs", properties=as_user("guest"))
        admin.admin.put_user("anna", None, [])
        with pytest.raises(penstock.PreconditionFailedError, match=REFUSED):
            anna.publish(b"forged", routing_key="jobs", properties=as_user("guest"))

    found = [admin.get("jobs", auto_ack=True) for _ in range(4)]
    assert [one and (one.body, one.properties.user_id) for one in found] == [
        (b"hers", "anna"),
        (b"unsigned", None),
        (b"for guest", "guest"),
        None,
    ]


def test_what_follows_a_message_with_another_users_name_waits_for_it_when_its_producer_is_named(
    broker: Broker, vhost: str, admin: penstock.Connection
) -> None:
    with (
        penstock.connect(broker.uri(vhost, "anna", "secret")) as anna,
        anna.stream("events").publisher("loader") as publisher,
    ):
        with pytest.raises(penstock.PreconditionFailedError, match=REFUSED):
            publisher.publish(b"forged", sequence=1, properties=as_user("guest"))
        with pytest.raises(penstock.PenstockError, match="sequence 1 of this producer was refused"):
            publisher.publish(b"next", sequence=2)
    assert admin.stream("events").info().message_count == 0


@pytest.mark.parametrize("staged", [False, True])
def test_rows_of_record_batches_with_another_users_name_are_refused(
    broker: Broker, vhost: str, admin: penstock.Connection, staged: bool
) -> None:
    def put(user: str) -> None:
        fields = pa.struct([("user_id", pa.string())])
        properties = pa.array([None, {"user_id": user}], fields)
        table = pa.table({"body": [b"first", b"second"], "properties": properties})
        descriptor = {"vhost": vhost, "stream": "events", **({"stage": "s", "batch": 1} if staged else {})}
        token = base64.b64encode(b"anna:secret").decode()
        options = flight.FlightCallOptions(headers=[(b"authorization", f"Basic {token}".encode())])
        with flight.FlightClient(f"grpc://{broker.address}") as client:
            command = flight.FlightDescriptor.for_command(json.dumps(descriptor))
            writer, results = client.do_put(command, table.schema, options)
            with writer:
                writer.write_table(table)
                writer.done_writing()
                while results.read() is not None:
                    pass

    with pytest.raises(pa.ArrowException, match=REFUSED):
        put("guest")
    assert admin.stream("events").info().message_count == 0
    put("anna")
    admin.admin.put_user("anna", None, ["impersonator"])
    put("guest")
    if not staged:
        users = [
            one.properties and one.properties.user_id for one in admin.stream("events").read("first", until="next")
        ]
        assert users == [None, "anna", None, "guest"]


def test_rows_with_another_users_name_are_not_staged(broker: Broker, vhost: str, admin: penstock.Connection) -> None:
    def stage(user: str) -> int:
        properties = message_pb2.Properties(user_id=user)
        rows = messaging_pb2.PublishBatch(messages=[messaging_pb2.Message(body=b"x", properties=properties)])
        target = staging_pb2.StageTarget(vhost=vhost, stage="s", stream="events")
        request = staging_pb2.StageRequest(target=target, batch=1, rows=rows)
        with grpc.insecure_channel(broker.address) as channel:
            stub = staging_pb2_grpc.StagingServiceStub(channel)
            return int(stub.Stage(request, metadata=BASIC, timeout=30).count)

    with pytest.raises(grpc.RpcError) as refused:
        stage("guest")
    assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert REFUSED in (refused.value.details() or "")
    assert stage("anna") == 1
    admin.admin.put_user("anna", None, ["impersonator"])
    assert stage("guest") == 1
