"""The native tables against the pure router: after any commands, a message goes where the router says."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.metadata import PREDECLARED_NAMES, changes_of
from penstock.model.arguments import Arguments, Value
from penstock.model.errors import RefusedError
from penstock.model.field_table import encode_table
from penstock.model.names import ExchangeName, QueueId, RoutingKey
from penstock.native import Engine, Shard
from penstock.routing import route
from penstock.vhost.apply import apply_changes
from support.argument_strategies import values
from support.machine import Machine

QUEUES = ("qa", "qb", "qc", "qd", "qe", "qf", "qg", "qh")
STREAMS = QUEUES[5:]
EXCHANGES = ("xa", "xb", "xc")
SOURCES = (*EXCHANGES, "amq.direct", "amq.topic", "amq.headers", "amq.fanout")
WEIGHTS = ("1", "2", "7", "2147483647")
KEYS = (*WEIGHTS, "", "a", "a.b", "a.b.c", "*", "#", "a.#", "*.b", "#.c", "a.*.c", "#.b.#", ".", "a..", "0", "1", "2")
SENT_KEYS = ("", "a", "b", "a.b", "a.c", "a.b.c", "a.x.c", "x.b.y", "b.c", ".", "a..", "#", "*", *QUEUES)
NAMES = ("n", "m", "x-n")
simple: st.SearchStrategy[Value] = st.sampled_from([None, None, True, 0, 1, 2**40, 1.0, "1", b"1", [1], {"n": 1}])
tables = st.dictionaries(st.sampled_from(NAMES), st.one_of(simple, values), max_size=3)
bound_tables = st.builds(
    lambda table, how: table if how is None else {**table, "x-match": how},
    tables,
    st.sampled_from([None, "all", "any", "all-with-x", "any-with-x"]),
)
CHOOSING = ("x-consistent-hash ring", "x-consistent-hash jump", "x-consistent-hash n", "x-modulus-hash")
exchanges = st.tuples(
    st.just("exchange"),
    st.sampled_from(EXCHANGES),
    st.sampled_from(["direct", "fanout", "topic", "headers", "x-super-stream", *CHOOSING]),
    st.sampled_from([None, "", "nowhere", *SOURCES]),
)
bindings = st.tuples(
    st.sampled_from(["bind", "bind", "bind", "bind", "unbind"]),
    st.sampled_from([*SOURCES, *["amq.topic", "amq.headers"] * 4]),
    st.sampled_from([*QUEUES * 5, *(f"exchange:{name}" for name in SOURCES)]),
    st.sampled_from(KEYS),
    bound_tables,
)
deletes = st.tuples(st.just("delete"), st.sampled_from([*QUEUES, *EXCHANGES]))


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shard]:
    directory: Path = tmp_path_factory.mktemp("vhost")
    engine = Engine(
        segment_bytes_min=1 << 20,
        segment_bytes_max=1 << 26,
        segment_idle_ms=60_000,
        compaction_bytes_per_second=1 << 26,
    )
    opened = engine.open_shard("/", str(directory), page_cache_lost=False)
    opened.retain_queues([])
    apply_changes(opened, changes_of(Machine().state))
    yield opened
    engine.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    declared=st.lists(exchanges, min_size=1, max_size=6),
    bound=st.lists(bindings, min_size=15, max_size=30),
    changed=st.lists(st.one_of(bindings, deletes, exchanges), max_size=8),
    sent=st.lists(tables, max_size=3),
)
def test_a_message_goes_where_the_pure_router_says(
    shard: Shard,
    declared: list[tuple[str, ...]],
    bound: list[tuple[str, ...]],
    changed: list[tuple[str, ...]],
    sent: list[dict[str, Value]],
) -> None:
    machine = Machine()
    machine.state.next_queue_id = QueueId(max(machine.state.next_queue_id, shard.highest_queue_id + 1))
    for name in QUEUES:
        arguments: Arguments = {"x-queue-type": "stream"} if name in STREAMS else {}
        machine.queue(name, arguments=arguments, durable=name in STREAMS)
    for command in (*declared, *bound, *changed):
        with suppress(RefusedError):
            perform(machine, *command)
    apply_changes(shard, machine.changes)
    # Bound headers are sent, too, or they would hardly ever match.
    sent_headers: list[Arguments] = [{}, *sent, *(headers_for(one.arguments) for one in machine.state.bindings())]

    try:
        for exchange in filter(machine.has_exchange, ("", *SOURCES)):
            for key, headers in [*((key, {}) for key in SENT_KEYS), *(("a.b", headers) for headers in sent_headers)]:
                expected = route(machine.state, ExchangeName(exchange), RoutingKey(key), headers)
                assert shard.route(exchange, key, encode_table(headers)) == expected
    finally:
        machine.changes.clear()
        empty(machine)
        apply_changes(shard, machine.changes)
    for exchange in ("amq.direct", "amq.topic", "amq.headers", "amq.fanout"):
        assert shard.route(exchange, "a", b"") == []


def headers_for(arguments: Arguments) -> Arguments:
    return {name: 0 if value is None else value for name, value in arguments.items() if name != "x-match"}


def perform(machine: Machine, what: str, name: str, *more: object) -> None:
    match what, *more:
        case "exchange", str(kind), alternate:
            arguments: Arguments = {"alternate-exchange": alternate} if isinstance(alternate, str) else {}
            kind, _, hashing = kind.partition(" ")
            if hashing:
                arguments = {**arguments, **({"hash-header": "n"} if hashing == "n" else {"x-algorithm": hashing})}
            machine.exchange(name, kind, arguments)
        case "bind", str(destination), str(key), dict(table):
            machine.bind(name, destination, key, table)
        case "unbind", str(destination), str(key), dict(table):
            machine.unbind(name, destination, key, table)
        case ("delete",):
            delete = machine.delete_queue if name in QUEUES else machine.delete_exchange
            delete(name)


def empty(machine: Machine) -> None:
    for queue in list(machine.state.queues):
        machine.delete_queue(queue)
    for exchange in list(machine.state.exchanges):
        if exchange not in PREDECLARED_NAMES:
            machine.delete_exchange(exchange)
    for binding in list(machine.state.bindings()):
        machine.unbind(binding.source, f"exchange:{binding.destination}", binding.routing_key, binding.arguments)
