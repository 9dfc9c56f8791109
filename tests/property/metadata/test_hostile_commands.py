"""Arbitrary arguments: a command is done or refused, and a refused one changes nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.arguments import Value, freeze_arguments
from penstock.model.errors import PreconditionFailedError, RefusedError
from penstock.model.field_table import decode_table, encode_table
from support.argument_strategies import arguments, values
from support.machine import Machine

keys = st.sampled_from(
    ["x-durability", "x-queue-type", "alternate-exchange", "x-match", "x-max-length", "x-odd", "note"]
)
tables = st.one_of(arguments, st.dictionaries(keys, values, max_size=3))


@given(tables)
def test_a_declare_is_done_or_refused(table: dict[str, Value]) -> None:
    machine = Machine()

    for declare in (machine.queue, machine.exchange):
        before = len(machine.changes)
        try:
            declare("a", arguments=table)
        except RefusedError:
            assert len(machine.changes) == before
        else:
            assert declare("a", arguments=table).changes == []


@given(tables, tables)
def test_declaring_again_is_refused_exactly_when_an_argument_differs(
    one: dict[str, Value], other: dict[str, Value]
) -> None:
    one = {key: value for key, value in one.items() if not key.startswith(("x-", "alternate-"))}
    other = {key: value for key, value in other.items() if not key.startswith(("x-", "alternate-"))}
    machine = Machine()
    machine.queue("a", arguments=one)

    if freeze_arguments(one) == freeze_arguments(other):
        machine.queue("a", arguments=other)
    else:
        with pytest.raises(PreconditionFailedError):
            machine.queue("a", arguments=other)


@given(tables)
def test_a_binding_is_done_or_refused_and_can_be_undone(table: dict[str, Value]) -> None:
    machine = Machine()
    machine.queue("a")
    for source in ("amq.headers", "amq.topic"):
        try:
            machine.bind(source, "a", arguments=table)
        except RefusedError:
            assert source == "amq.headers"
        else:
            machine.unbind(source, "a", arguments=decode_table(encode_table(table)))

    assert machine.state.binding_count == 0
