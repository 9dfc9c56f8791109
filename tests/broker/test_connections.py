"""Connections and consumers: listed to those who may see them, closed by those who may."""

import subprocess
from collections.abc import Iterator

import pytest

import penstock
from support import Broker
from support.broker import penstock_command
from support.waiting import eventually


@pytest.fixture
def root(broker: Broker, vhost: str) -> Iterator[penstock.Connection]:
    with penstock.connect(broker.uri(vhost)) as connection:
        connection.declare_queue("jobs")
        connection.admin.put_user("anna", "secret", [])
        connection.admin.set_permission("anna", vhost, ".*", ".*", ".*")
        yield connection
        connection.admin.delete_user("anna")


@pytest.fixture
def anna(broker: Broker, vhost: str, root: penstock.Connection) -> Iterator[penstock.Connection]:
    with penstock.connect(broker.uri(vhost, user="anna", password="secret")) as connection:
        yield connection


def users_of(connection: penstock.Connection) -> set[str]:
    return {user for each in connection.admin.list_connections() for user in each.users}


def own_id(connection: penstock.Connection, user: str) -> int:
    (found,) = (each.id for each in connection.admin.list_connections() if user in each.users)
    return found


def test_administrators_see_all_connections_and_others_their_own(
    root: penstock.Connection, anna: penstock.Connection
) -> None:
    assert users_of(root) >= {"guest", "anna"}
    assert users_of(anna) == {"anna"}
    root.admin.put_user("anna", tags=["monitoring"])
    assert users_of(anna) >= {"guest", "anna"}


def test_a_connection_shows_where_its_client_is_and_what_it_does(
    root: penstock.Connection, anna: penstock.Connection, vhost: str
) -> None:
    consumption = anna.consume("jobs")
    eventually(lambda: len(anna.admin.list_consumers()), 1)

    (mine,) = anna.admin.list_connections()
    assert mine.peer.startswith("127.0.0.1:")
    assert (mine.users, mine.vhosts, mine.consumer_count) == (("anna",), (vhost,), 1)
    consumption.close()
    eventually(lambda: anna.admin.list_connections()[0].consumer_count, 0)


def test_consumers_are_listed_with_their_settings_until_they_end(
    root: penstock.Connection, anna: penstock.Connection, vhost: str
) -> None:
    exclusive = anna.consume("jobs", prefetch=7, exclusive=True, consumer_tag="mine")
    eventually(lambda: len(root.admin.list_consumers()), 1)

    (found,) = root.admin.list_consumers()
    assert (found.queue, found.consumer_tag, found.user, found.vhost) == ("jobs", "mine", "anna", vhost)
    assert (found.prefetch, found.auto_ack, found.exclusive) == (7, False, True)
    assert found.connection == own_id(root, "anna")
    exclusive.flow(20)
    eventually(lambda: [each.prefetch for each in anna.admin.list_consumers()], [20])
    exclusive.close()
    eventually(root.admin.list_consumers, [])


def test_others_do_not_see_a_consumer(root: penstock.Connection, anna: penstock.Connection) -> None:
    with root.consume("jobs"):
        eventually(lambda: len(root.admin.list_consumers()), 1)
        assert anna.admin.list_consumers() == []


def test_a_closed_connection_ends_and_its_client_connects_again(
    root: penstock.Connection, anna: penstock.Connection
) -> None:
    before = own_id(root, "anna")
    messages = anna.consume("jobs")
    eventually(lambda: len(root.admin.list_consumers()), 1)

    root.admin.close_connection(before)

    eventually(lambda: before in {each.id for each in root.admin.list_connections()}, False)
    root.publish(b"after", routing_key="jobs")
    assert next(iter(messages)).body == b"after"
    assert own_id(root, "anna") != before
    messages.close()


def test_users_close_their_own_connections_and_no_others(
    broker: Broker, vhost: str, root: penstock.Connection, anna: penstock.Connection
) -> None:
    theirs = min(each.id for each in root.admin.list_connections() if "guest" in each.users)
    with pytest.raises(penstock.AccessRefusedError, match="is not a connection of yours"):
        anna.admin.close_connection(theirs)
    with pytest.raises(penstock.AccessRefusedError, match="is not a connection of yours"):
        anna.admin.close_connection(2**40)
    with pytest.raises(penstock.NotFoundError, match=f"connection '{2**40}' not found"):
        root.admin.close_connection(2**40)

    with penstock.connect(broker.uri(vhost, user="anna", password="secret")) as other:
        older = min(each.id for each in other.admin.list_connections())
        other.admin.close_connection(older)
        eventually(lambda: older in {each.id for each in other.admin.list_connections()}, False)


def test_the_command_line_lists_and_closes(
    broker: Broker, vhost: str, root: penstock.Connection, anna: penstock.Connection
) -> None:
    def run(*arguments: str) -> str:
        command = [penstock_command(), *arguments, "--uri", broker.uri(vhost)]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    with anna.consume("jobs", consumer_tag="shown"):
        eventually(lambda: len(root.admin.list_consumers()), 1)
        number = own_id(root, "anna")

        assert f"{number} " in run("connection", "list")
        assert "shown" in run("consumer", "list")
        assert run("connection", "close", str(number)) == f"connection {number} closed\n"
