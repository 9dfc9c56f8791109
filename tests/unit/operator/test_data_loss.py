"""A broker that began empty: with `lossPolicy: Manual` nothing is declared in it, whoever finds it first."""

import pytest

from penstock_operator.engine import Key
from support.admin_fake import FakeBroker
from support.operator_world import OperatorWorld

CLUSTER = Key("Cluster", "default", "mq")


def started(policy: str) -> OperatorWorld:
    world = OperatorWorld()
    world.start_cluster(storage={"lossPolicy": policy})
    world.apply("Queue", "orders", {"name": "orders"})
    world.settle()
    return world


def lose_data(world: OperatorWorld) -> FakeBroker:
    """Start the broker on an empty disk, and let an object in it be checked before its Cluster."""
    world.broker = FakeBroker.new("generated")
    world.broker.data_id = "data-2"
    world.world.brokers.forget("mq.default.svc")
    world.waiting.clear()
    world.seconds += 60
    return world.broker


@pytest.mark.parametrize("name", ["orders", "new"])
def test_an_object_that_finds_the_loss_before_its_cluster_declares_nothing(name: str) -> None:
    world = started("Manual")
    empty = lose_data(world)
    if name == "new":
        world.apply("Queue", "new", {"name": "new"})
        world.waiting.clear()

    world.reconcile(Key("Queue", "default", name))

    assert empty.vhosts["/"]["queues"] == {}
    assert world.condition("Queue", name) == ("False", "DataLost")
    assert CLUSTER in world.waiting, "it is checked at once"
    world.settle()
    assert world.condition("Cluster", "mq") == ("False", "DataLost")
    assert empty.vhosts["/"]["queues"] == {}

    annotations = {"metadata": {"annotations": {"penstock.dev/data-loss-seen": "data-2"}}}
    world.kubernetes.edit("Cluster", "mq", annotations)
    world.settle()
    assert {"orders", name} == set(empty.vhosts["/"]["queues"])


def test_with_the_policy_auto_it_declares_at_once() -> None:
    world = started("Auto")
    empty = lose_data(world)

    world.reconcile(Key("Queue", "default", "orders"))

    assert list(empty.vhosts["/"]["queues"]) == ["orders"]
