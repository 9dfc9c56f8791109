"""Arguments of every type, and the kinds Stream and TopicPermission."""

from typing import Any

import pytest
from pydantic import ValidationError

from penstock.metadata.argument_table import BY_NAME, BY_POLICY_KEY
from penstock_operator.api import ExchangeSpec, QueueSpec, StreamSpec
from penstock_operator.api.broker_arguments import EXCHANGE, POLICY, QUEUE, STREAM
from support.operator_world import OperatorWorld
from tools.generate_operator_arguments import MODULE, module

DELAYED = "x-delayed-message"
EVERY_TYPE = {"x-dedicated": True, "team": "shop", "size": 3, "share": 0.5}
REF = {"clusterRef": {"name": "mq"}}


@pytest.fixture
def world() -> OperatorWorld:
    made = OperatorWorld()
    made.start_cluster()
    return made


def things(world: OperatorWorld, kind: str) -> dict[Any, Any]:
    assert world.broker is not None
    return world.broker.vhosts["/"].get(kind, {})


@pytest.mark.parametrize("kind", [QueueSpec, ExchangeSpec, StreamSpec])
def test_an_argument_keeps_its_type(kind: type[QueueSpec | ExchangeSpec | StreamSpec]) -> None:
    given = {"yes": True, "no": False, "one": 1, "half": 0.5, "text": "true", "list": [1, "2"]}

    found = kind.model_validate({**REF, "name": "orders", "arguments": given}).arguments

    assert found == given
    assert [type(each) for each in found.values()] == [type(each) for each in given.values()]


@pytest.mark.parametrize("value", [None, [[1]], {"a": 1}])
def test_an_argument_of_another_type_is_refused(value: Any) -> None:
    with pytest.raises(ValidationError):
        QueueSpec.model_validate({**REF, "name": "orders", "arguments": {"a": value}})


def test_a_queue_with_a_log_of_its_own_is_declared_and_in_order_from_then_on(world: OperatorWorld) -> None:
    world.apply("Queue", "orders", {"name": "orders", "arguments": EVERY_TYPE})
    world.settle()
    world.look_again()

    assert things(world, "queues")["orders"]["arguments"] == EVERY_TYPE
    assert world.condition("Queue", "orders") == ("True", "Synced")


def test_changed_arguments_are_a_mismatch_and_the_queue_stays(world: OperatorWorld) -> None:
    world.apply("Queue", "orders", {"name": "orders", "arguments": {"x-dedicated": True}})
    world.settle()
    world.kubernetes.change("Queue", "orders", {"arguments": {"x-dedicated": False}})
    world.settle()

    assert things(world, "queues")["orders"]["arguments"] == {"x-dedicated": True}
    assert world.condition("Queue", "orders") == ("False", "Mismatch")


def test_a_type_that_is_written_twice_is_refused_by_name(world: OperatorWorld) -> None:
    world.apply("Queue", "orders", {"name": "orders", "type": "stream", "arguments": {"x-queue-type": "classic"}})
    world.settle()

    assert things(world, "queues") == {}
    assert world.condition("Queue", "orders") == ("False", "InvalidSpec")


def test_a_stream_in_partitions_is_declared_and_in_order_from_then_on(world: OperatorWorld) -> None:
    spec = {"name": "readings", "partitions": 4, "maxAge": "7D", "maxLengthBytes": 1024, "dedicated": True}
    world.apply("Stream", "readings", spec)
    world.settle()
    world.look_again()

    wanted = {"x-max-age": "7D", "x-max-length-bytes": 1024, "x-dedicated": True}
    assert things(world, "streams")["readings"] == (4, wanted)
    assert world.condition("Stream", "readings") == ("True", "Synced")


def test_a_stream_stays_on_the_broker_unless_its_manifest_says_delete(world: OperatorWorld) -> None:
    world.apply("Stream", "kept", {"name": "kept"})
    world.apply("Stream", "gone", {"name": "gone", "deletionPolicy": "Delete"})
    world.settle()

    world.kubernetes.remove("Stream", "kept")
    world.kubernetes.remove("Stream", "gone")
    world.settle()

    assert list(things(world, "streams")) == ["kept"]


def test_an_argument_that_has_a_field_is_refused_by_the_field_s_name() -> None:
    with pytest.raises(ValidationError, match="write 'maxAge' instead of 'x-max-age'"):
        StreamSpec.model_validate({**REF, "name": "readings", "arguments": {"x-max-age": "7D"}})


@pytest.mark.parametrize(("first", "second"), [("Queue", "Stream"), ("Stream", "Queue")])
def test_a_queue_and_a_stream_of_one_name_are_in_conflict(world: OperatorWorld, first: str, second: str) -> None:
    for kind in (first, second):
        world.apply(kind, "readings", {"name": "readings", **({"type": "stream"} if kind == "Queue" else {})})
    world.settle()

    assert world.condition(first, "readings") == ("True", "Synced")
    assert world.condition(second, "readings", "Conflict") == ("True", "Conflict")


def test_a_topic_permission_is_set_repaired_and_cleared(world: OperatorWorld) -> None:
    assert world.broker is not None
    world.apply("User", "web", {"name": "web"})
    wanted = {"userRef": {"name": "web"}, "exchange": "shop", "write": r"order\..*"}
    world.apply("TopicPermission", "web", wanted)
    world.settle()
    held = world.broker.topic_permissions
    assert held == {("web", "/", "shop"): (r"order\..*", "")}

    held["web", "/", "shop"] = (".*", ".*")
    world.look_again()
    assert held == {("web", "/", "shop"): (r"order\..*", "")}
    assert ("TopicPermission", "web", "DriftRepaired") in world.kubernetes.events

    world.kubernetes.remove("TopicPermission", "web")
    world.settle()
    assert held == {}


def test_topic_permissions_of_two_exchanges_are_two_things(world: OperatorWorld) -> None:
    world.apply("User", "web", {"name": "web"})
    for exchange in ("shop", "stock"):
        world.apply("TopicPermission", exchange, {"user": "web", "exchange": exchange, "read": "#"})
    world.settle()

    assert world.condition("TopicPermission", "shop") == ("True", "Synced")
    assert world.condition("TopicPermission", "stock") == ("True", "Synced")


def test_the_kinds_know_the_arguments_and_keys_of_the_broker_s_table() -> None:
    assert module() == MODULE.read_text(), "run `make crds`"
    assert set(POLICY) <= set(BY_POLICY_KEY)
    assert {*QUEUE, *STREAM, *EXCHANGE} <= set(BY_NAME)
    assert {"x-message-ttl", "x-delivery-limit", "x-single-active-consumer", "x-max-age"} <= set(QUEUE)
    assert {"alternate-exchange", "x-delayed-type", "hash-header"} <= set(EXCHANGE)


def test_a_quorum_queue_is_declared_as_one_and_in_order_from_then_on(world: OperatorWorld) -> None:
    world.apply("Queue", "orders", {"name": "orders", "type": "quorum", "arguments": {"x-delivery-limit": 5}})
    world.settle()
    world.look_again()

    assert things(world, "queues")["orders"]["arguments"] == {"x-delivery-limit": 5, "x-queue-type": "quorum"}
    assert world.condition("Queue", "orders") == ("True", "Synced")


def test_an_exchange_that_delays_needs_the_type_by_which_it_routes(world: OperatorWorld) -> None:
    with pytest.raises(ValidationError, match="write 'x-delayed-type' into arguments"):
        ExchangeSpec.model_validate({**REF, "name": "later", "type": "x-delayed-message"})

    world.apply("Exchange", "later", {"name": "later", "type": DELAYED, "arguments": {"x-delayed-type": "topic"}})
    world.settle()
    assert world.condition("Exchange", "later") == ("True", "Synced")
