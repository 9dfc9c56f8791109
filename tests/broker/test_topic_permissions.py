"""Topic permissions: routing keys that a user may not write or bind, for publishers, binders and Arrow clients."""

import base64
import itertools
from collections.abc import Iterator
from pathlib import Path

import grpc
import pyarrow as pa
import pytest
from pyarrow import flight

import penstock
from penstock.v1 import messaging_pb2, messaging_pb2_grpc
from support import Broker, eventually

SECONDS_MAX = 60


@pytest.fixture
def root(broker: Broker, vhost: str) -> Iterator[penstock.Connection]:
    """With a user `anna` who may do everything in the vhost, a topic exchange and a queue bound to all of it."""
    with penstock.connect(broker.uri(vhost)) as connection:
        connection.admin.put_user("anna", "secret")
        connection.admin.set_permission("anna", vhost, ".*", ".*", ".*")
        connection.declare_exchange("logs", "topic")
        connection.declare_exchange("direct", "direct")
        connection.declare_queue("all")
        connection.bind_queue("all", "logs", "#")
        connection.bind_queue("all", "direct", "db.error")
        yield connection
        connection.admin.delete_user("anna")


@pytest.fixture
def anna(broker: Broker, vhost: str, root: penstock.Connection) -> Iterator[penstock.Connection]:
    with penstock.connect(broker.uri(vhost, "anna", "secret")) as connection:
        yield connection


def bodies(connection: penstock.Connection) -> list[bytes]:
    found = []
    while (message := connection.get("all")) is not None:
        found.append(message.body)
        message.ack()
    return found


def test_messages_are_admitted_by_their_routing_keys(root: penstock.Connection, anna: penstock.Connection) -> None:
    root.admin.set_topic_permission("anna", "logs", write=r"{username}\..*")

    anna.publish(b"mine", exchange="logs", routing_key="anna.x")
    anna.publish(b"mine too", exchange="logs", routing_key="anna.y")
    with pytest.raises(penstock.AccessRefusedError, match=r"routing key 'db\.error'"):
        anna.publish(b"theirs", exchange="logs", routing_key="db.error")
    anna.publish(b"by a direct exchange", exchange="direct", routing_key="db.error")

    assert bodies(root) == [b"mine", b"mine too", b"by a direct exchange"]


def test_many_routing_keys_of_one_batch_are_each_decided(broker: Broker, vhost: str, root: penstock.Connection) -> None:
    """More than are asked for at a time, and more than are kept: the allowed ones are stored, and in their order."""
    root.admin.set_topic_permission("anna", "logs", write=r"even\..*")
    keys = [f"{'odd' if number % 2 else 'even'}.{number}" for number in range(20_000)]
    batch = messaging_pb2.PublishBatch(
        exchange="logs", messages=[messaging_pb2.Message(body=key.encode(), routing_key=key) for key in keys]
    )
    requests = [
        messaging_pb2.PublishRequest(open=messaging_pb2.PublishOpen(vhost=vhost)),
        *[messaging_pb2.PublishRequest(batch=batch)] * 2,
    ]
    credentials = base64.b64encode(b"anna:secret").decode()

    confirmed, rejected, codes = 0, 0, set()
    with grpc.insecure_channel(broker.address) as channel:
        stub = messaging_pb2_grpc.MessagingServiceStub(channel)
        metadata = [("authorization", f"Basic {credentials}")]
        for response in stub.Publish(iter(requests), metadata=metadata, timeout=SECONDS_MAX):
            confirmed += sum(each.last - each.first + 1 for each in response.confirmed)
            rejected += sum(each.last - each.first + 1 for each in response.rejected)
            codes |= {each.code for each in response.rejected}

    assert (confirmed, rejected, codes) == (20_000, 20_000, {7})
    found = [message.body.decode() for message in itertools.islice(root.consume("all", auto_ack=True), 20_000)]
    assert found == [key for key in keys if key.startswith("even")] * 2


def test_a_permission_that_is_set_or_cleared_counts_at_once_on_open_streams(
    root: penstock.Connection, anna: penstock.Connection
) -> None:
    anna.publish(b"before", exchange="logs", routing_key="db.error")

    root.admin.set_topic_permission("anna", "logs", write="nothing")
    with pytest.raises(penstock.AccessRefusedError):
        anna.publish(b"meanwhile", exchange="logs", routing_key="db.error")
    root.admin.delete_topic_permission("anna", "logs")
    anna.publish(b"after", exchange="logs", routing_key="db.error")

    assert bodies(root) == [b"before", b"after"]


def test_a_binding_is_admitted_by_its_routing_key(root: penstock.Connection, anna: penstock.Connection) -> None:
    root.admin.set_topic_permission("anna", "logs", read=r"app\..*")
    anna.declare_queue("annas")

    anna.bind_queue("annas", "logs", "app.#")
    with pytest.raises(penstock.AccessRefusedError, match="routing key '#'"):
        anna.bind_queue("annas", "logs", "#")
    with pytest.raises(penstock.AccessRefusedError):
        anna.unbind_queue("annas", "logs", "db.#")
    anna.bind_queue("annas", "direct", "anything")


def test_rows_of_a_table_are_admitted_by_their_routing_keys(
    broker: Broker, vhost: str, root: penstock.Connection
) -> None:
    root.admin.set_topic_permission("anna", "logs", write=r"app\..*")

    assert put(broker, vhost, ["app.a", "app.b"]) is None
    refusal = put(broker, vhost, ["app.c", "db.error"])

    assert refusal is not None
    assert "routing key 'db.error'" in refusal
    assert bodies(root) == [b"app.a", b"app.b"]


def put(broker: Broker, vhost: str, keys: list[str]) -> str | None:
    """Publish a row for each key; return the refusal."""
    table = pa.table({"body": [key.encode() for key in keys], "routing_key": keys})
    credentials = base64.b64encode(b"anna:secret")
    options = flight.FlightCallOptions(headers=[(b"authorization", b"Basic " + credentials)])
    command = f'{{"vhost": "{vhost}", "exchange": "logs"}}'
    with flight.FlightClient(f"grpc://{broker.address}") as client:
        writer, results = client.do_put(flight.FlightDescriptor.for_command(command), table.schema, options)
        try:
            with writer:
                writer.write_table(table)
                writer.done_writing()
                while results.read() is not None:
                    pass
        except flight.FlightUnauthorizedError as refused:
            return str(refused)
    return None


def test_topic_permissions_are_there_after_a_restart_and_in_definitions(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        with penstock.connect(broker.uri()) as root:
            root.admin.put_user("anna", "secret")
            root.admin.set_permission("anna", "/", ".*", ".*", ".*")
            root.admin.set_topic_permission("anna", "amq.topic", write="a.*", read="b.*")
            known = root.admin.list_topic_permissions("anna")
            exported = root.admin.export_definitions()
            root.admin.delete_topic_permission("anna")
            assert root.admin.list_topic_permissions() == []
            assert root.admin.import_definitions(exported).added["topic_permissions"] == 1

        broker.restart()

        with penstock.connect(broker.uri()) as root:
            assert root.admin.list_topic_permissions("anna") == known
            assert [(one.exchange, one.write, one.read) for one in known] == [("amq.topic", "a.*", "b.*")]
        with penstock.connect(broker.uri(user="anna", password="secret")) as anna:
            assert anna.admin.list_topic_permissions() == known
            with pytest.raises(penstock.AccessRefusedError):
                anna.publish(b"x", exchange="amq.topic", routing_key="b")
            with pytest.raises(penstock.AccessRefusedError):
                anna.admin.set_topic_permission("anna", "amq.topic", write=".*")


def test_changes_of_topic_permissions_are_in_the_audit_log(broker: Broker, root: penstock.Connection) -> None:
    root.admin.set_topic_permission("anna", "logs", write="told-in-the-log")

    eventually(lambda: "SetTopicPermission" in broker.log and "told-in-the-log" in broker.log, True, SECONDS_MAX)
