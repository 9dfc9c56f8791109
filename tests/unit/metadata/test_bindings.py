"""Binding and unbinding."""

import pytest

from penstock.metadata.effects import AddRoute, Done, PersistBound, PersistUnbound, RemoveRoute
from penstock.model.errors import AccessRefusedError, InvalidArgumentError, NotFoundError
from support.machine import Machine


@pytest.fixture
def machine() -> Machine:
    made = Machine()
    made.queue("a")
    made.queue("fleeting", durable=False)
    made.exchange("x", "fanout")
    made.exchange("passing", "direct", durable=False)
    made.entries.clear()
    made.changes.clear()
    return made


def test_a_binding_of_durable_ends_is_written(machine: Machine) -> None:
    decision = machine.bind("x", "a", "key", {"note": 1})

    assert decision.entries == [PersistBound(machine.binding("x", "a", "key", {"note": 1}))]
    assert [type(change) for change in decision.changes] == [AddRoute]


@pytest.mark.parametrize(("source", "destination"), [("x", "fleeting"), ("passing", "a"), ("x", "passing")])
def test_a_binding_with_a_transient_end_is_not_written(machine: Machine, source: str, destination: str) -> None:
    machine.bind(source, destination)
    machine.unbind(source, destination)

    assert machine.entries == []
    assert [type(change) for change in machine.changes] == [AddRoute, RemoveRoute]


def test_binding_twice_is_binding_once(machine: Machine) -> None:
    machine.bind("amq.direct", "a", "key", {"b": 1, "a": 2})

    decision = machine.bind("amq.direct", "a", "key", {"a": 2, "b": 1})

    assert (decision.answer, decision.entries, decision.changes) == (Done(0), [], [])
    assert machine.state.binding_count == 1


def test_bindings_that_differ_in_arguments_only_are_two(machine: Machine) -> None:
    machine.bind("amq.headers", "a", "", {"n": 1})
    machine.bind("amq.headers", "a", "", {"n": True})

    assert machine.state.binding_count == 2
    assert len(machine.changes) == 2


def test_a_route_stays_until_its_last_binding_goes(machine: Machine) -> None:
    machine.bind("x", "a", "one")
    machine.bind("x", "a", "two")
    machine.unbind("x", "a", "one")
    assert [type(change) for change in machine.changes] == [AddRoute]

    machine.unbind("x", "a", "two")

    assert [type(change) for change in machine.changes] == [AddRoute, RemoveRoute]


def test_the_default_exchange_cannot_be_bound(machine: Machine) -> None:
    for source, destination in (("", "a"), ("x", "exchange:")):
        with pytest.raises(AccessRefusedError, match="default exchange"):
            machine.bind(source, destination)
        with pytest.raises(AccessRefusedError, match="default exchange"):
            machine.unbind(source, destination)


def test_both_ends_must_be_there(machine: Machine) -> None:
    with pytest.raises(NotFoundError, match="exchange 'nowhere'"):
        machine.bind("nowhere", "a")
    with pytest.raises(NotFoundError, match="queue 'nowhere'"):
        machine.bind("x", "nowhere")
    with pytest.raises(NotFoundError, match="exchange 'nowhere'"):
        machine.bind("x", "exchange:nowhere")


def test_a_binding_that_is_not_there_cannot_be_removed(machine: Machine) -> None:
    machine.bind("x", "a", "one")

    with pytest.raises(NotFoundError, match=r"binding 'x -> queue a \(two\)' in vhost '/' not found"):
        machine.unbind("x", "a", "two")


def test_unbinding_is_written_as_it_was_bound(machine: Machine) -> None:
    machine.bind("x", "a", "one")

    assert machine.unbind("x", "a", "one").entries == [PersistUnbound(machine.binding("x", "a", "one"))]


@pytest.mark.parametrize("how", ["all", "any", "all-with-x", "any-with-x"])
def test_a_headers_exchange_knows_four_ways_to_match(machine: Machine, how: str) -> None:
    machine.bind("amq.headers", "a", arguments={"x-match": how})


def test_another_way_to_match_is_refused_where_it_matters(machine: Machine) -> None:
    with pytest.raises(InvalidArgumentError, match="'x-match' whose value 'some' is not valid"):
        machine.bind("amq.headers", "a", arguments={"x-match": "some"})
    machine.bind("amq.direct", "a", arguments={"x-match": "some"})


def test_a_binding_is_found_from_both_its_ends(machine: Machine) -> None:
    machine.bind("amq.topic", "x", "#")
    machine.bind("x", "a")
    binding = machine.binding("amq.topic", "x", "#")

    assert list(machine.state.bindings_from(binding.source)) == [binding]
    assert list(machine.state.bindings_to(binding.destination_kind, binding.destination)) == [binding]
