"""Definitions JSON: a written one reads back, and arbitrary text causes nothing worse than a refusal."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.metadata.effects import Entry, PersistBound, PersistExchange, PersistQueue
from penstock.model.arguments import Value, freeze_arguments
from penstock.model.errors import RefusedError
from penstock.model.names import ExchangeName, QueueId, QueueName, RoutingKey, VhostName
from penstock.model.records import Binding, DestinationKind, Exchange, ExchangeKind, Queue
from penstock.vhost.definitions_json import read_definitions, write_topology
from support.argument_strategies import json_arguments, texts

HERE = VhostName("blue")
KEYS = [
    *("name", "vhost", "type", "durable", "auto_delete", "internal", "arguments", "description", "tags", "metadata"),
    *("default_queue_type", "limits", "source", "destination", "destination_type", "routing_key", "properties_key"),
]
TAGS = ["$bytes", "$timestamp", "$decimal", "$float"]
TOP = [
    "users",
    "permissions",
    "vhosts",
    "exchanges",
    "queues",
    "bindings",
    "global_parameters",
    "policies",
    "parameters",
]

plain = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts, st.just("\ud800"))
anything = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(texts, st.sampled_from(TAGS)), inner, max_size=2),
    ),
    max_leaves=8,
)
PLAIN_OBJECT = {
    **dict.fromkeys(("name", "vhost", "source", "destination", "routing_key"), "n"),
    "type": "direct",
    "destination_type": "queue",
    "arguments": {},
}
wrong = st.one_of(
    anything,
    st.just([1]),
    st.just({"n": 1}),
    st.builds(lambda tag, value: {"n": {tag: value}}, st.sampled_from(TAGS), anything),
)
objects = st.builds(lambda key, value: {**PLAIN_OBJECT, key: value}, st.sampled_from(KEYS), wrong)
documents = st.one_of(
    anything,
    st.dictionaries(st.sampled_from(TOP), st.one_of(anything, st.lists(objects, max_size=3)), min_size=1, max_size=5),
)


@given(texts.filter(bool), texts, json_arguments, st.booleans())
def test_what_is_written_is_read_again(name: str, key: str, table: dict[str, Value], flag: bool) -> None:
    queue = Queue(QueueId(1), QueueName(name), flag, not flag, table)
    exchange = Exchange(ExchangeName(name), ExchangeKind.HEADERS, flag, not flag, flag, table)
    binding = Binding(exchange.name, DestinationKind.QUEUE, queue.name, RoutingKey(key), table)
    entries: list[Entry] = [PersistExchange(exchange), PersistQueue(queue), PersistBound(binding)]

    for place, into in ((HERE, None), (None, HERE)):
        read = read_definitions(json.dumps(write_topology(entries, place)).encode(), into)

        assert read.problems == []
        (where, declare), (_, declare_queue), (_, bound) = read.exchanges[0], read.queues[0], read.bindings[0]
        assert where == HERE
        assert (declare.name, declare.kind, declare.durable) == (name, "headers", flag)
        assert (declare.auto_delete, declare.internal) == (not flag, flag)
        assert (declare_queue.name, declare_queue.durable, declare_queue.auto_delete) == (name, flag, not flag)
        assert freeze_arguments(declare_queue.arguments) == freeze_arguments(table)
        assert bound.identity == binding.identity


WRONG: list[object] = [None, True, 7, 1e400, -1.5, "", "n", "\ud800", [], [1], {}, {"n": 1}]
WRONG += [{"n": {tag: value}} for tag in TAGS for value in [*WRONG, {"scale": 1e400, "unscaled": None}]]


@pytest.mark.parametrize("section", TOP)
def test_a_wrong_value_anywhere_is_a_problem_or_a_refusal(section: str) -> None:
    """Try every key of every kind of object with every kind of wrong value, one at a time."""
    for key in KEYS:
        for value in WRONG:
            with suppress(RefusedError):
                read_definitions(json.dumps({section: [{**PLAIN_OBJECT, key: value}]}).encode(), None)


@given(documents)
def test_any_json_is_read_or_refused(document: object) -> None:
    with suppress(RefusedError):
        read_definitions(json.dumps(document).encode(), None)


@given(st.binary(max_size=50))
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    with suppress(RefusedError):
        read_definitions(text, None)
