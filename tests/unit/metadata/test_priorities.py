"""Queues with priorities: their ids, which the log has for each priority, and the values of the argument."""

import pytest

from penstock.metadata import restore
from penstock.metadata.effects import PersistQueue
from penstock.model.errors import InvalidArgumentError, LimitReachedError
from penstock.model.names import QUEUE_ID_MAX, QueueId, QueueName, VhostName
from penstock.model.records import Queue
from penstock.storage.amqp_frames import Declared, QueueDeleted
from penstock.storage.definitions_fold import Fold
from support.machine import Machine


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_the_next_queue_comes_after_all_priorities(machine: Machine) -> None:
    machine.queue("plain")
    machine.queue("urgent", arguments={"x-max-priority": 10})
    machine.queue("next", arguments={"x-max-priority": 0})
    machine.queue("last")

    found = {name: (queue.id, queue.last_id) for name, queue in machine.state.queues.items()}
    assert found == {"plain": (1, 1), "urgent": (2, 12), "next": (13, 13), "last": (14, 14)}


@pytest.mark.parametrize("value", [-1, 256, True, "5", 1.5])
def test_a_priority_is_from_0_to_255(machine: Machine, value: object) -> None:
    with pytest.raises(InvalidArgumentError, match="write a number from 0 to 255"):
        machine.queue("q", arguments={"x-max-priority": value})  # type: ignore[dict-item]


def test_no_id_is_above_the_last_one(machine: Machine) -> None:
    machine.state.next_queue_id = QueueId(QUEUE_ID_MAX - 4)

    with pytest.raises(LimitReachedError):
        machine.queue("q", arguments={"x-max-priority": 5})
    machine.queue("q", arguments={"x-max-priority": 4})


def test_ids_of_priorities_are_not_given_again_after_a_restart() -> None:
    queue = Queue(QueueId(7), QueueName("q"), arguments={"x-max-priority": 255})

    assert restore(VhostName("/"), [PersistQueue(queue)], 7).next_queue_id == 7 + 256


def test_nor_after_the_file_was_rewritten_without_the_queue() -> None:
    fold = Fold()
    queue = Queue(QueueId(7), QueueName("q"), arguments={"x-max-priority": 255})
    fold.apply_all([Declared(queue), QueueDeleted(queue.name)])

    rewritten = Fold()
    rewritten.apply_all(fold.changes())

    assert rewritten.highest_queue_id == 7 + 255


def test_a_queue_that_stays_keeps_its_last_id_in_the_file() -> None:
    fold = Fold()
    fold.apply(Declared(Queue(QueueId(7), QueueName("q"), arguments={"x-max-priority": 255})))

    assert len(fold.changes()) == 1


def test_queues_with_priorities_are_in_all_shards_in_turn(machine: Machine) -> None:
    machine.state.shard_count = 3
    for number in range(6):
        machine.queue(f"q{number}", arguments={"x-max-priority": 2})

    assert [queue.shard for queue in machine.state.queues.values()] == [0, 1, 2, 0, 1, 2]
