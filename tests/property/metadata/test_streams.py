"""Streams declared, deleted and bound in any order.

The engine routes as the pure router, a start from the entries restores the same, and a stream that a start from any
prefix leaves incomplete can be declared again.
"""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from penstock.metadata import changes_of, entries_of, restore
from penstock.metadata.commands import DeclareStream, DeleteStream
from penstock.metadata.streams import partitions, stream_names
from penstock.model.errors import RefusedError
from penstock.model.names import ExchangeName, RoutingKey
from penstock.routing import route
from penstock.vhost.apply import apply_changes
from support.machine import Machine
from support.vhost_fakes import FakeShard

NAMES = ("s", "t", "s-0", "s-1")
KEYS = ("", "a", "b", "anna", "0", "1")
STREAM = {"x-queue-type": "stream"}
commands = st.one_of(
    st.tuples(st.just("stream"), st.sampled_from(NAMES), st.integers(0, 4)),
    st.tuples(st.just("delete stream"), st.sampled_from(NAMES), st.just(0)),
    st.tuples(st.just("queue"), st.sampled_from(NAMES), st.integers(0, 1)),
    st.tuples(st.just("delete queue"), st.sampled_from(NAMES), st.just(0)),
    st.tuples(st.just("exchange"), st.sampled_from(NAMES), st.integers(0, 1)),
    st.tuples(st.just("delete exchange"), st.sampled_from(NAMES), st.just(0)),
    st.tuples(st.just("bind"), st.sampled_from(NAMES), st.integers(0, 3)),
    st.tuples(st.just("unbind"), st.sampled_from(NAMES), st.integers(0, 3)),
)


def perform(machine: Machine, what: str, name: str, number: int) -> None:
    match what:
        case "stream":
            machine.decide(DeclareStream(name, number))
        case "delete stream":
            machine.decide(DeleteStream(name))
        case "queue":
            machine.queue(name, arguments=STREAM if number else {})
        case "delete queue":
            machine.delete_queue(name)
        case "exchange":
            machine.exchange(name, "x-super-stream" if number else "direct")
        case "delete exchange":
            machine.delete_exchange(name)
        case "bind":
            machine.bind(NAMES[number], name, str(number))
        case "unbind":
            machine.unbind(NAMES[number], name, str(number))


@given(st.lists(commands, max_size=20), st.integers(0, 100))
def test_streams_come_and_go_in_any_order(asked: list[tuple[str, str, int]], kept_percent: int) -> None:
    machine, shard = Machine(), FakeShard()
    apply_changes(shard, changes_of(machine.state))  # type: ignore[arg-type]
    for command in asked:
        before = len(machine.entries), len(machine.changes)
        with suppress(RefusedError):
            perform(machine, *command)
            continue
        assert (len(machine.entries), len(machine.changes)) == before, "a refusal changed something"
    apply_changes(shard, machine.changes)  # type: ignore[arg-type]

    for exchange in machine.state.exchanges:
        for key in KEYS:
            assert shard.route(exchange, key) == route(machine.state, ExchangeName(exchange), RoutingKey(key))
    again = restore(machine.state.vhost, machine.entries, 0)
    assert list(entries_of(again)) == list(entries_of(machine.state))
    cut = Machine()
    cut.state = restore(machine.state.vhost, machine.entries[: len(machine.entries) * kept_percent // 100], 0)
    for name in stream_names(cut.state):
        exchange_there = cut.state.exchanges.get(ExchangeName(name))
        count = exchange_there.partition_count if exchange_there is not None else 1
        with suppress(RefusedError):  # another thing may have taken a partition's name
            cut.decide(DeclareStream(name, count or 2))
            assert len(partitions(cut.state, name)) == count
