"""Restoring a topology from the definitions file."""

import pytest

from penstock.metadata import changes_of, entries_of, restore
from penstock.metadata.effects import (
    AddRoute,
    Entry,
    PersistBound,
    PersistExchange,
    PersistExchangeDeleted,
    PersistQueue,
    PersistQueueDeleted,
    PersistUnbound,
    PutExchange,
)
from penstock.model.errors import StorageError
from penstock.model.names import ExchangeName, QueueId, QueueName, RoutingKey, VhostName
from penstock.model.records import Binding, DestinationKind, Exchange, ExchangeKind, Queue
from support.machine import Machine

HERE = VhostName("/")
QUEUE = Queue(QueueId(7), QueueName("a"))
EXCHANGE = Exchange(ExchangeName("x"), ExchangeKind.FANOUT)
BINDING = Binding(EXCHANGE.name, DestinationKind.QUEUE, QUEUE.name, RoutingKey(""))


def test_what_was_durable_is_there_again_and_nothing_else() -> None:
    machine = Machine()
    machine.queue("a")
    machine.queue("fleeting", durable=False)
    machine.exchange("x", "fanout")
    machine.bind("x", "a")
    machine.bind("x", "fleeting")
    machine.bind("x", "x")

    again = restore(HERE, machine.entries, 0)

    again.check_invariants()
    assert again.queues == {"a": machine.queue_named("a")}
    assert again.exchanges == machine.state.exchanges
    assert {binding.destination for binding in again.bindings()} == {"a", "x"}


def test_ids_count_on_above_the_file_and_above_the_log() -> None:
    assert restore(HERE, [PersistQueue(QUEUE)], 3).next_queue_id == 8
    assert restore(HERE, [PersistQueue(QUEUE)], 30).next_queue_id == 31
    assert restore(HERE, [PersistQueue(QUEUE), PersistQueueDeleted(QUEUE.name)], 0).next_queue_id == 8
    assert restore(HERE, [], 0).next_queue_id == 1


def test_the_short_form_means_the_same() -> None:
    machine = Machine()
    for name in ("a", "b", "c"):
        machine.queue(name)
        machine.bind("amq.topic", name, f"{name}.#")
    machine.delete_queue("b")

    short = list(entries_of(machine.state))

    assert len(short) == 4
    assert list(entries_of(restore(HERE, short, 0))) == short


def test_a_new_engine_gets_everything_once_and_in_order() -> None:
    machine = Machine()
    machine.exchange("x", "fanout")
    machine.queue("a")
    machine.bind("x", "a", "one")
    machine.bind("x", "a", "two")

    changes = list(changes_of(machine.state))

    kinds = [type(change) for change in changes]
    assert kinds.count(AddRoute) == 1
    assert kinds[-1] is AddRoute
    assert kinds.count(PutExchange) == 6, "the default exchange is built into the engine"


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([PersistQueue(QUEUE), PersistQueue(QUEUE)], "number 1 .*'a' is declared twice"),
        ([PersistExchange(EXCHANGE), PersistExchange(EXCHANGE)], "number 1 .*'x' is declared twice"),
        ([PersistQueueDeleted(QUEUE.name)], "number 0 .*'a' is deleted without having been declared"),
        ([PersistExchangeDeleted(EXCHANGE.name)], "number 0 .*'x' is deleted without having been declared"),
        ([PersistExchangeDeleted(ExchangeName("amq.topic"))], "'amq.topic' is deleted"),
        ([PersistExchange(EXCHANGE), PersistBound(BINDING)], "number 1 .*not both there"),
        ([PersistExchange(EXCHANGE), PersistQueue(QUEUE), PersistUnbound(BINDING)], "is not bound"),
        ([PersistExchange(EXCHANGE), PersistQueue(QUEUE), PersistBound(BINDING), PersistBound(BINDING)], "bound twice"),
    ],
)
def test_an_entry_that_does_not_fit_is_a_fault_with_its_place(entries: list[Entry], problem: str) -> None:
    with pytest.raises(StorageError, match=problem):
        restore(HERE, entries, 0)
