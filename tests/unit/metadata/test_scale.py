"""Steps stay short with many things: counted in operations of the machine, not in seconds."""

import sys
from types import FrameType

import pytest

from penstock.metadata.binding_index import BindingPlace
from penstock.metadata.binding_pages import binding_page
from penstock.model.names import ExchangeName
from support.machine import Machine


def lines_run(action: object) -> int:
    """Return how many lines of Python an action runs: the same on every machine."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        action()  # type: ignore[operator]
    finally:
        sys.settrace(before)
    return count


def world(binding_count: int) -> Machine:
    machine = Machine(is_checked=False)
    machine.exchange("x", "topic")
    for index in range(binding_count):
        machine.queue(f"q{index:06}")
        machine.bind("x", f"q{index:06}", f"key.{index}")
    return machine


@pytest.mark.slow
def test_a_step_among_many_bindings_costs_what_it_costs_among_few() -> None:
    few, many = world(20), world(10_000)

    for action in (
        lambda machine: machine.queue("q000007x"),
        lambda machine: machine.bind("x", "q000007", "another"),
        lambda machine: machine.unbind("x", "q000007", "another"),
        lambda machine: machine.delete_queue("q000007"),
        lambda machine: machine.state.queue_names.page("q000009", 5),
        lambda machine: binding_page(machine.state, ExchangeName("x"), None, None, 5),
        lambda machine: binding_page(machine.state, None, None, BindingPlace("x", "q000009", "queue", ""), 5),
    ):
        cost_few = lines_run(lambda action=action: action(few))
        cost_many = lines_run(lambda action=action: action(many))
        assert cost_many <= cost_few + 30
