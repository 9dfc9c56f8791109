"""A virtual host that is deleted and made anew while clients of the old one stay connected.

They have nothing of the new one without permissions in it, and nothing of the old one is in their way.
"""

import pytest

import penstock
from support import Broker

NAME = "made-anew"


def make(root: penstock.Connection, *users: str) -> None:
    root.admin.create_vhost(NAME)
    for user in users:
        root.admin.set_permission(user, NAME, ".*", ".*", ".*")


def test_what_is_held_of_a_deleted_virtual_host_is_not_in_the_way_of_the_one_made_anew(broker: Broker) -> None:
    """The connection went on with the deleted one: no `get` of it succeeded any more, and acks went nowhere."""
    with penstock.connect(broker.uri()) as root:
        make(root, "guest")
        with penstock.connect(broker.uri(NAME)) as connection:
            connection.declare_queue("q")
            for body in (b"old", b"old too"):
                connection.publish(body, routing_key="q")
            old = connection.get("q")
            assert old is not None
            root.admin.delete_vhost(NAME)
            make(root, "guest")
            connection.declare_queue("q")
            connection.publish(b"new", routing_key="q")

            old.ack()
            assert connection.admin.get_queue("q").ready_count == 1
            new = connection.get("q")
            assert new is not None
            assert new.body == b"new"
            new.ack()
            queue = connection.admin.get_queue("q")
            assert (queue.ready_count, queue.unacked_count) == (0, 0)
        root.admin.delete_vhost(NAME)


def test_a_client_of_a_deleted_virtual_host_has_no_permission_in_the_one_made_anew(broker: Broker) -> None:
    with penstock.connect(broker.uri()) as root:
        root.admin.put_user("clara", "secret")
        make(root, "clara")
        with penstock.connect(broker.uri(NAME, "clara", "secret")) as clara:
            clara.declare_queue("q")
            for body in (b"old", b"old too"):
                clara.publish(body, routing_key="q")
            old = clara.get("q")
            assert old is not None
            root.admin.delete_vhost(NAME)
            make(root, "guest")
            with penstock.connect(broker.uri(NAME)) as other:
                other.declare_queue("q")
                other.publish(b"new", routing_key="q")

                with pytest.raises(penstock.AccessRefusedError):
                    old.ack()
                with pytest.raises(penstock.AccessRefusedError):
                    clara.get("q")
                with pytest.raises(penstock.AccessRefusedError):
                    clara.publish(b"mine", routing_key="q")
                assert other.admin.get_queue("q").ready_count == 1
        root.admin.delete_vhost(NAME)
        root.admin.delete_user("clara")
