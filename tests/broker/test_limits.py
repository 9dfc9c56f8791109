"""Limits of a virtual host end to end: queues and connections, after a restart too."""

from pathlib import Path

import pytest

import penstock
from support import Broker
from support.waiting import eventually


def test_a_queue_above_the_limit_is_refused_also_after_a_restart(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        with penstock.connect(broker.uri()) as connection:
            connection.admin.set_vhost_limits(queues_max=1)
            connection.declare_queue("one")
        broker.kill()
        broker.start()
        with penstock.connect(broker.uri()) as connection:
            connection.declare_queue("one")
            with pytest.raises(penstock.PenstockError, match="would be one more than vhost '/' may have"):
                connection.declare_queue("two")
            connection.admin.set_vhost_limits()
            connection.declare_queue("two")


def test_a_connection_above_the_limit_is_refused_until_another_has_ended(broker: Broker, vhost: str) -> None:
    with penstock.connect(broker.uri(vhost)) as root, penstock.connect(broker.uri(vhost)) as second:
        root.declare_queue("q")
        root.admin.set_vhost_limits(connections_max=1)
        with penstock.connect(broker.uri(vhost)) as first:
            first.publish(b"a", routing_key="q")
            assert root.admin.get_vhost_limits().connection_count == 1
            with pytest.raises(penstock.PenstockError, match="would exceed the limit of 1 that may be open"):
                second.publish(b"b", routing_key="q")
            first.publish(b"c", routing_key="q")
        eventually(lambda: root.admin.get_vhost_limits().connection_count, 0)
        second.publish(b"d", routing_key="q")


def test_only_administrators_set_limits(broker: Broker, vhost: str) -> None:
    with penstock.connect(broker.uri(vhost)) as root:
        root.admin.put_user("lena", "secret")
        root.admin.set_permission("lena", vhost, ".*", ".*", ".*")
        with penstock.connect(broker.uri(vhost, "lena", "secret")) as lena:
            assert lena.admin.get_vhost_limits().queues_max is None
            with pytest.raises(penstock.AccessRefusedError):
                lena.admin.set_vhost_limits(queues_max=1)
        root.admin.delete_user("lena")
