"""Kinds that are not as the operator's chart has them: without a status, or taken away while it runs."""

import pytest

from penstock_operator.engine import Key
from penstock_operator.links import ApiError
from support.operator_world import OperatorWorld

ORDERS = Key("Queue", "default", "orders")
QUEUE = {"name": "orders", "deletionPolicy": "Delete"}


@pytest.fixture
def world() -> OperatorWorld:
    made = OperatorWorld()
    made.start_cluster()
    return made


def queues(world: OperatorWorld) -> list[str]:
    assert world.broker is not None
    return sorted(world.broker.vhosts["/"]["queues"])


def test_an_object_whose_kind_has_no_status_stays_known_and_the_error_says_why(world: OperatorWorld) -> None:
    # The object was taken for deleted: it claimed nothing any more until the next list.
    world.kubernetes.kinds_without_status.add("Queue")
    world.apply("Queue", "orders", QUEUE)

    with pytest.raises(ApiError, match="its kind has no subresource 'status'; upgrade the kinds"):
        world.reconcile(ORDERS)

    assert world.store.get(ORDERS) is not None
    world.kubernetes.kinds_without_status.clear()
    world.look_again()
    assert world.condition("Queue", "orders") == ("True", "Synced")


def test_an_object_that_went_unseen_is_dropped_by_its_status(world: OperatorWorld) -> None:
    world.apply("Queue", "orders", QUEUE)
    world.kubernetes.on_change = lambda manifest, is_gone: None
    world.kubernetes.finish("Queue", "orders")

    with pytest.raises(ApiError):
        world.reconcile(ORDERS)

    assert world.store.get(ORDERS) is None


@pytest.mark.parametrize("lacks", ["kinds_missing", "kinds_forbidden"])
def test_a_deletion_while_a_kind_is_missing_says_so_and_can_be_released(world: OperatorWorld, lacks: str) -> None:
    # A Stream might describe the same queue. The deletion waited without a word.
    world.apply("Queue", "orders", QUEUE)
    world.settle()
    getattr(world.kubernetes, lacks).add("Stream")

    world.kubernetes.remove("Queue", "orders")
    world.settle()
    assert world.condition("Queue", "orders") == ("False", "KindNotListed")
    assert ("Queue", "orders", "DeletionWaits") in world.kubernetes.events
    assert queues(world) == ["orders"]

    world.kubernetes.edit("Queue", "orders", {"metadata": {"annotations": {"penstock.dev/release": "true"}}})
    world.settle()
    assert world.kubernetes.get("Queue", "orders") is None
    assert queues(world) == ["orders"]


def test_a_deletion_goes_on_when_the_kind_is_there_again(world: OperatorWorld) -> None:
    world.apply("Queue", "orders", QUEUE)
    world.settle()
    world.kubernetes.kinds_missing.add("Stream")
    world.kubernetes.remove("Queue", "orders")
    world.settle()

    world.kubernetes.kinds_missing.clear()
    world.look_again()

    assert world.kubernetes.get("Queue", "orders") is None
    assert queues(world) == []


def test_an_api_server_that_is_away_is_no_missing_kind(world: OperatorWorld) -> None:
    world.apply("Queue", "orders", QUEUE)
    world.settle()
    world.kubernetes.remove("Queue", "orders")
    world.kubernetes.is_away = True

    with pytest.raises(ApiError, match="does not answer"):
        world.reconcile(ORDERS)
