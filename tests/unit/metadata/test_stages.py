"""Stages: their owners, and that other commands cannot make, limit or count them."""

import pytest

from penstock.metadata import stages
from penstock.metadata.commands import DeclareStream, SetPolicy
from penstock.metadata.policies import Policy
from penstock.metadata.policy_rules import effective_queue
from penstock.metadata.stages import Target
from penstock.metadata.streams import stream_names
from penstock.model.errors import InvalidArgumentError, NotFoundError, PreconditionFailedError, TooLargeError
from penstock.model.names import ExchangeName, RoutingKey
from support.machine import Machine

TO_ORDERS = Target(ExchangeName(""), RoutingKey("orders"))


@pytest.fixture
def machine() -> Machine:
    machine = Machine()
    machine.decide(DeclareStream("orders"))
    machine.decide(DeclareStream("clicks", 2))
    machine.exchange("events")
    return machine


def test_a_target_is_a_stream_or_an_exchange(machine: Machine) -> None:
    state = machine.state

    assert stages.target_of(state, "orders", "", "") == TO_ORDERS
    assert stages.target_of(state, "clicks", "", "") == Target(ExchangeName("clicks"), RoutingKey(""))
    assert stages.target_of(state, "events", "", "") == Target(ExchangeName("events"), RoutingKey(""))
    assert stages.target_of(state, "", "events", "k") == Target(ExchangeName("events"), RoutingKey("k"))
    with pytest.raises(NotFoundError):
        stages.target_of(state, "nothing", "", "")
    with pytest.raises(InvalidArgumentError, match="beside"):
        stages.target_of(state, "orders", "events", "")


def test_a_stage_is_declared_again_for_its_own_target_only(machine: Machine) -> None:
    machine.decide(stages.declaration("s", TO_ORDERS))
    machine.decide(stages.declaration("s", TO_ORDERS))

    with pytest.raises(PreconditionFailedError):
        machine.decide(stages.declaration("s", Target(ExchangeName("events"), RoutingKey(""))))

    (found,) = stages.all_of(machine.state)
    assert (stages.name_of(found), stages.target_in(found)) == ("s", TO_ORDERS)
    assert stages.get(machine.state, "s") == found
    assert stream_names(machine.state) == ["clicks", "orders"]
    with pytest.raises(NotFoundError):
        stages.get(machine.state, "other")


@pytest.mark.parametrize(("name", "error"), [("", InvalidArgumentError), ("x" * 250, TooLargeError)])
def test_a_name_that_no_queue_can_have_is_refused(name: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        stages.queue_of(name)


def test_no_policy_says_what_a_stage_promises(machine: Machine) -> None:
    machine.decide(stages.declaration("s", TO_ORDERS))
    machine.decide(SetPolicy(Policy("all", ".*", {"durability": "os"})))

    (stage,) = stages.all_of(machine.state)
    orders = machine.queue_named("orders")
    assert effective_queue(machine.state, stage) == stage
    assert effective_queue(machine.state, orders).arguments["x-durability"] == "os"
