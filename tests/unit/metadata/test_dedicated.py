"""Which queues may have an own log, and how many."""

import pytest

from penstock.metadata.commands import DeclareStream
from penstock.metadata.decide import decide
from penstock.metadata.limit_rules import DEDICATED_MAX
from penstock.model.arguments import Value
from penstock.model.errors import InvalidArgumentError, LimitReachedError, PreconditionFailedError
from support.machine import Machine

OWN: dict[str, Value] = {"x-dedicated": True}


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_a_queue_has_a_log_of_its_own_when_it_says_true(machine: Machine) -> None:
    machine.queue("a", arguments=OWN)
    machine.queue("b", arguments={"x-dedicated": False})
    machine.queue("c")

    assert [machine.queue_named(name).is_dedicated for name in "abc"] == [True, False, False]


@pytest.mark.parametrize("value", ["true", 1, None])
def test_a_value_that_is_neither_true_nor_false_is_refused(machine: Machine, value: Value) -> None:
    with pytest.raises(InvalidArgumentError, match="x-dedicated"):
        machine.queue("a", arguments={"x-dedicated": value})


def test_it_is_for_queues_that_stay(machine: Machine) -> None:
    with pytest.raises(InvalidArgumentError, match="not durable, or exclusive"):
        machine.queue("a", durable=False, arguments=OWN)
    with pytest.raises(InvalidArgumentError, match="not durable, or exclusive"):
        machine.queue("a", exclusive=True, arguments=OWN)


def test_a_queue_that_is_there_gets_none_later(machine: Machine) -> None:
    machine.queue("a")

    with pytest.raises(PreconditionFailedError, match="x-dedicated"):
        machine.queue("a", arguments=OWN)


def test_there_are_only_so_many_in_a_vhost(machine: Machine) -> None:
    for number in range(DEDICATED_MAX - 1):
        machine.queue(f"q{number}", arguments=OWN)
    two = DeclareStream("s", 2, arguments=OWN)

    with pytest.raises(LimitReachedError, match="dedicated logs"):
        decide(machine.state, two)
    machine.queue("last", arguments=OWN)
    with pytest.raises(LimitReachedError, match="dedicated logs"):
        machine.queue("one more", arguments=OWN)
    machine.queue("plain")
