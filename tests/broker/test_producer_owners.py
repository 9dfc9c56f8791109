"""Names of producers belong to users: no other user publishes under them, sees them or fills the table of names."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

import penstock
from support import Broker, eventually

SECRET = "secret"


@pytest.fixture
def admin(broker: Broker, vhost: str) -> Iterator[penstock.Connection]:
    """With the users anna and bob, each with a stream that the other may not write."""
    with penstock.connect(broker.uri(vhost)) as connection:
        for user in ("anna", "bob"):
            connection.admin.put_user(user, SECRET)
            connection.admin.set_permission(user, vhost, f"^{user}", f"^({user}|amq.default)", f"^{user}")
            connection.declare_stream(f"{user}-events")
        yield connection
        for user in ("anna", "bob"):
            connection.admin.delete_user(user)


@pytest.fixture
def users(broker: Broker, vhost: str, admin: penstock.Connection) -> Iterator[list[penstock.Connection]]:
    with (
        penstock.connect(broker.uri(vhost, "anna", SECRET)) as anna,
        penstock.connect(broker.uri(vhost, "bob", SECRET)) as bob,
    ):
        yield [anna, bob]


def publish(connection: penstock.Connection, stream: str, producer: str, sequence: int) -> None:
    with connection.stream(stream).publisher(producer) as publisher:
        publisher.publish(b"x", sequence=sequence)


def count(admin: penstock.Connection, stream: str) -> int:
    return admin.stream(stream).info().message_count


@pytest.mark.parametrize("native", [True, False], ids=["native", "pure"])
def test_another_user_neither_takes_a_name_over_nor_sees_it(
    broker: Broker, vhost: str, admin: penstock.Connection, users: list[penstock.Connection], native: bool
) -> None:
    anna, bob = users
    publish(anna, "anna-events", "loader", 1)

    with (
        penstock.connect(broker.uri(vhost, "bob", SECRET), native=native) as other,
        pytest.raises(penstock.AccessRefusedError, match="belongs to another user"),
    ):
        publish(other, "bob-events", "loader", 2**40)

    publish(anna, "anna-events", "loader", 2)
    assert count(admin, "anna-events") == 2
    assert bob.admin.list_producers() == []
    assert [(one.name, one.owner) for one in anna.admin.list_producers()] == [("loader", "anna")]
    with pytest.raises(penstock.AccessRefusedError, match="belongs to another user"):
        bob.stream("bob-events").publisher("loader")
    assert anna.stream("anna-events").publisher("loader").last_sequence == 2


def put(
    client: flight.FlightClient, descriptor: flight.FlightDescriptor, table: pa.Table, options: flight.FlightCallOptions
) -> None:
    writer, _ = client.do_put(descriptor, table.schema, options)
    with writer:
        writer.write_table(table)
        writer.done_writing()


def test_rows_of_record_batches_are_not_published_under_the_name_of_another_user(
    broker: Broker, vhost: str, admin: penstock.Connection, users: list[penstock.Connection]
) -> None:
    anna, _ = users
    publish(anna, "anna-events", "loader", 1)
    token = base64.b64encode(b"bob:secret").decode()
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Basic {token}".encode())])
    command = {"vhost": vhost, "stream": "bob-events", "producer": "loader", "sequence": 2**40}
    table = pa.table({"body": [b"x"]})

    with flight.FlightClient(f"grpc://{broker.address}") as client:
        descriptor = flight.FlightDescriptor.for_command(json.dumps(command))
        with pytest.raises(pa.ArrowException, match="belongs to another user"):
            put(client, descriptor, table, options)

    publish(anna, "anna-events", "loader", 2)
    assert count(admin, "anna-events") == 2
    assert count(admin, "bob-events") == 0


def test_administrators_see_and_delete_all_names_and_do_not_publish_under_them(
    admin: penstock.Connection, users: list[penstock.Connection]
) -> None:
    anna, bob = users
    publish(anna, "anna-events", "loader", 1)
    publish(bob, "bob-events", "copier", 1)

    assert {one.name: one.owner for one in admin.admin.list_producers()} == {"loader": "anna", "copier": "bob"}
    with pytest.raises(penstock.AccessRefusedError, match="belongs to another user"):
        publish(admin, "anna-events", "loader", 2)
    assert admin.admin.delete_producer("loader")

    publish(bob, "bob-events", "loader", 1)
    assert {one.name: one.owner for one in admin.admin.list_producers()} == {"loader": "bob", "copier": "bob"}


def end(broker: Broker, vhost: str, user: str, *names: str) -> int:
    token = base64.b64encode(f"{user}:{SECRET}".encode()).decode()
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Basic {token}".encode())])
    action = flight.Action("EndProducers", json.dumps({"vhost": vhost, "producers": names}).encode())
    with flight.FlightClient(f"grpc://{broker.address}") as client:
        (result,) = client.do_action(action, options)
    ended: int = json.loads(result.body.to_pybytes())["ended"]
    return ended


def test_users_end_their_own_names_in_one_call(
    broker: Broker, vhost: str, admin: penstock.Connection, users: list[penstock.Connection]
) -> None:
    anna, bob = users
    for name in ("job/0", "job/1"):
        publish(anna, "anna-events", name, 1)
    publish(bob, "bob-events", "copier", 1)

    assert end(broker, vhost, "anna", "job/0", "job/1", "job/2") == 2
    with pytest.raises(pa.ArrowException, match="belongs to another user"):
        end(broker, vhost, "anna", "copier")
    with pytest.raises(pa.ArrowInvalid, match="at most 4096 names"):
        end(broker, vhost, "anna", *(f"job/{number}" for number in range(5_000)))

    assert [one.name for one in admin.admin.list_producers()] == ["copier"]
    for late in ("job/0", "job/2"):
        with pytest.raises(penstock.PenstockError, match="is over"):
            publish(anna, "anna-events", late, 1)


def test_the_owner_of_a_name_survives_kills_and_backups(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    with Broker(tmp_path / "data") as broker:
        with penstock.connect(broker.uri()) as admin:
            admin.admin.put_user("bob", SECRET)
            admin.admin.set_permission("bob", "/", ".*", ".*", ".*")
            admin.declare_stream("events")
            publish(admin, "events", "loader", 1)
            admin.admin.backup(str(backup))
        broker.kill()
        broker.start()
        refused_to_bob(broker)
    with Broker(backup) as restored:
        refused_to_bob(restored)


@pytest.mark.parametrize("native", [True, False], ids=["native", "pure"])
def test_a_user_made_anew_does_not_inherit_producers(
    broker: Broker, vhost: str, admin: penstock.Connection, native: bool
) -> None:
    """It inherited them: its first messages were confirmed as stored before, and bob was refused the names."""
    with penstock.connect(broker.uri(vhost, "anna", SECRET), native=native) as anna:
        publish(anna, "anna-events", "other", 1)
        with anna.stream("anna-events").publisher("loader") as publisher:
            publisher.publish(b"x", sequence=5)
            admin.admin.delete_user("anna")
            with pytest.raises(penstock.PenstockError):
                publisher.publish(b"y", sequence=6)
    assert admin.admin.list_producers() == []

    admin.admin.put_user("anna", SECRET)
    admin.admin.set_permission("anna", vhost, "^anna", "^(anna|amq.default)", "^anna")
    with penstock.connect(broker.uri(vhost, "anna", SECRET), native=native) as anna:
        assert anna.stream("anna-events").publisher("loader").last_sequence == 0
        publish(anna, "anna-events", "loader", 1)
    with penstock.connect(broker.uri(vhost, "bob", SECRET), native=native) as bob:
        publish(bob, "bob-events", "other", 1)
    assert {one.name: one.owner for one in admin.admin.list_producers()} == {"loader": "anna", "other": "bob"}
    assert count(admin, "anna-events") == 3


def test_a_start_deletes_the_producers_of_a_user_whose_deletion_was_interrupted(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        with penstock.connect(broker.uri()) as admin:
            admin.admin.put_user("bob", SECRET)
            admin.admin.set_permission("bob", "/", ".*", ".*", ".*")
            admin.declare_stream("events")
            with penstock.connect(broker.uri("", "bob", SECRET)) as bob:
                publish(bob, "events", "loader", 1)
        broker.kill()
        (tmp_path / "data" / "deletions.json").write_text('[{"kind": "user", "name": "bob"}]')
        broker.start()
        with penstock.connect(broker.uri()) as admin:
            assert admin.admin.list_producers() == []
            publish(admin, "events", "loader", 1)
            assert count(admin, "events") == 2
        assert not (tmp_path / "data" / "deletions.json").exists()


def refused_to_bob(broker: Broker) -> None:
    with (
        penstock.connect(broker.uri("", "bob", SECRET)) as bob,
        pytest.raises(penstock.AccessRefusedError, match="belongs to another user"),
    ):
        publish(bob, "events", "loader", 9)


def test_a_user_has_so_many_names_and_others_are_not_refused(tmp_path: Path) -> None:
    settings = tmp_path / "penstock.toml"
    settings.write_text("producers_per_user_max = 2\n")
    with Broker(tmp_path / "data", "--config", str(settings)) as broker, penstock.connect(broker.uri()) as admin:
        admin.admin.put_user("bob", SECRET)
        admin.admin.set_permission("bob", "/", ".*", ".*", ".*")
        admin.declare_stream("events")
        for name in ("first", "second", "first"):
            publish(admin, "events", name, 1)
        with pytest.raises(penstock.PreconditionFailedError, match="the user has 2 names of producers already"):
            publish(admin, "events", "third", 1)

        with penstock.connect(broker.uri("", "bob", SECRET)) as bob:
            publish(bob, "events", "third", 1)
        admin.admin.delete_producer("second")
        publish(admin, "events", "fourth", 1)
        eventually(lambda: len(admin.admin.list_producers()), 3)
