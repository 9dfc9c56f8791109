"""Which shard a new queue is in."""

from collections import Counter

import pytest

from penstock.metadata import check_shard_count, restore, stages
from penstock.metadata.commands import DeclareStream
from penstock.metadata.decide import decide
from penstock.metadata.effects import PersistQueue
from penstock.metadata.limit_rules import SHARDS_MAX
from penstock.model.errors import InvalidArgumentError, PreconditionFailedError, StorageError, Thing
from penstock.model.names import ExchangeName, QueueId, QueueName, RoutingKey, VhostName
from penstock.model.records import Queue
from support.machine import Machine

SHOP = Thing("vhost", "shop")


@pytest.fixture
def machine() -> Machine:
    made = Machine()
    made.state.shard_count = 3
    return made


def test_queues_are_in_all_shards_in_turn(machine: Machine) -> None:
    for number in range(30):
        machine.queue(f"q{number}")

    found = Counter(queue.shard for queue in machine.state.queues.values())

    assert found == {0: 10, 1: 10, 2: 10}


def test_the_partitions_of_a_stream_are_in_different_shards(machine: Machine) -> None:
    machine.queue("other")
    decide(machine.state, DeclareStream("s", 3))

    assert {machine.queue_named(f"s-{number}").shard for number in range(3)} == {0, 1, 2}


def test_without_further_shards_all_are_in_the_first() -> None:
    machine = Machine()
    for number in range(5):
        machine.queue(f"q{number}")

    assert {queue.shard for queue in machine.state.queues.values()} == {0}


def test_stages_and_dedicated_queues_are_in_no_further_shard(machine: Machine) -> None:
    for number in range(4):
        machine.queue(f"own{number}", arguments={"x-dedicated": True})
        target = stages.Target(ExchangeName("amq.direct"), RoutingKey(""))
        decide(machine.state, stages.declaration(f"stage{number}", target))

    assert {queue.shard for queue in machine.state.queues.values()} == {0}
    assert len(machine.state.queues) == 8


def test_a_queue_stays_in_its_shard_when_there_are_more(machine: Machine) -> None:
    for number in range(6):
        machine.queue(f"q{number}")
    before = {name: queue.shard for name, queue in machine.state.queues.items()}

    machine.state.shard_count = 5
    for number in range(6):
        machine.queue(f"q{number}")

    assert {name: queue.shard for name, queue in machine.state.queues.items()} == before
    machine.state.check_invariants()


def test_a_client_does_not_choose_it(machine: Machine) -> None:
    with pytest.raises(InvalidArgumentError, match="'x-penstock-shard' that only the broker sets"):
        machine.queue("q", arguments={"x-penstock-shard": 1})


def test_definitions_that_name_a_shard_which_is_not_there_are_refused() -> None:
    entries = [PersistQueue(Queue(QueueId(7), QueueName("q"), shard=2))]

    assert restore(VhostName("shop"), entries, 0, shard_count=3).queues[QueueName("q")].shard == 2
    with pytest.raises(StorageError, match="queue 'q' is in shard 2, and there are 2 shards"):
        restore(VhostName("shop"), entries, 0, shard_count=2)


def test_there_are_never_fewer_and_not_too_many() -> None:
    assert check_shard_count(SHOP, 5, current=3) == 5
    assert check_shard_count(SHOP, 3, current=3) == 3
    with pytest.raises(PreconditionFailedError, match="has 3 shards and cannot have 2: a queue stays in its shard"):
        check_shard_count(SHOP, 2, current=3)
    for count in (0, -1, SHARDS_MAX + 1):
        with pytest.raises(InvalidArgumentError, match="choose a number from 1 to 64"):
            check_shard_count(SHOP, count)
