"""The checker of histories, fed with those of brokers that keep their promises and of others that do not."""

from collections import deque
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.history import SAMPLES, History, Outcome, Producer, body, message_of

QUEUES = ("taken", "kept")


def history(*, is_deduplicated: bool = False, count: int = 4) -> tuple[History, Producer]:
    producer = Producer("p", is_deduplicated)
    producer.send(count)
    return History([producer], ["taken"]), producer


def deliver(found: History, *numbers: int, flagged: bool = False, queue: str = "taken") -> None:
    for number in numbers:
        found.deliver(queue, body("p", number), is_redelivered=flagged)


def broken(found: History) -> dict[str, list[str]]:
    return {name: findings.samples for verdict in found.verdicts() for name, findings in verdict.broken()}


def test_messages_that_come_once_and_in_order_break_no_rule():
    found, producer = history()
    producer.confirm(range(4))
    deliver(found, 0, 1, 2, 3)

    assert broken(found) == {}
    assert [(each.delivered, each.redelivered) for each in found.verdicts()] == [(4, 0)]


def test_a_confirmed_message_that_never_comes_is_lost():
    found, producer = history()
    producer.confirm(range(4))
    deliver(found, 0, 1, 3)

    assert broken(found) == {"lost": ["p 2"]}


def test_a_message_is_lost_from_the_queue_that_lacks_it_alone():
    producer = Producer("p")
    producer.confirm(producer.send(1))
    found = History([producer], QUEUES)
    deliver(found, 0, queue="kept")

    assert [(each.queue, each.lost.count) for each in found.verdicts()] == [("taken", 1), ("kept", 0)]


@pytest.mark.parametrize("came", [(), (1,)])
def test_a_message_without_an_answer_may_come_or_not(came: tuple[int, ...]):
    found, producer = history()
    producer.confirm([0, 2, 3])
    producer.lose_answers(range(4))
    deliver(found, 0, *came, 2, 3)

    assert broken(found) == {}
    assert producer.count(Outcome.UNKNOWN) == 1


def test_a_message_without_an_answer_may_come_after_later_ones():
    found, producer = history()
    producer.lose_answers([0])
    producer.confirm(range(1, 4))
    deliver(found, 1, 0, 2, 3)

    assert broken(found) == {}


def test_bytes_that_were_never_sent_are_unexpected():
    found, _ = history()
    found.deliver("taken", b"p 1;p 1;p 2", is_redelivered=False)
    found.deliver("taken", body("other", 0), is_redelivered=False)
    deliver(found, 4)

    assert [verdict.unexpected.count for verdict in found.verdicts()] == [3]


def test_a_refused_message_that_comes_is_unexpected():
    found, producer = history()
    producer.fail([1])
    deliver(found, 1)

    assert broken(found) == {"unexpected": ["p 1"]}


def test_a_message_that_one_log_refused_may_come_once_from_another_one():
    found, producer = history()
    producer.fail_in_part(range(1, 2))
    deliver(found, 0, 1)
    assert broken(found) == {}

    deliver(found, 1)

    assert broken(found) == {"duplicates": ["p 1"]}


def test_a_message_that_was_refused_when_it_was_sent_again_may_come_of_the_first_time():
    found, producer = history()
    producer.lose_answers([1])
    producer.send_again([1])
    producer.fail([1])
    deliver(found, 1)

    assert broken(found) == {}


def test_a_message_may_come_again_flagged_and_not_without_a_flag():
    found, producer = history()
    producer.confirm(range(4))
    deliver(found, 0, 1, 2, 3)
    deliver(found, 1, 0, flagged=True)
    assert broken(found) == {}

    deliver(found, 3)

    assert broken(found) == {"duplicates": ["p 3"]}


def test_messages_that_return_after_their_acknowledgement_are_counted():
    found, producer = history()
    producer.confirm(range(4))
    deliver(found, 0, 1, 2, 3)
    found.acknowledge("taken", body("p", 1))
    deliver(found, 0, 1, flagged=True)

    (verdict,) = found.verdicts()

    assert (verdict.delivered, verdict.redelivered, verdict.returned) == (6, 2, 1)


@pytest.mark.parametrize("is_deduplicated", [False, True])
def test_a_message_that_was_sent_again_comes_twice_unless_the_broker_deduplicates(is_deduplicated: bool):
    found, producer = history(is_deduplicated=is_deduplicated)
    producer.lose_answers(range(4))
    producer.send_again(range(4))
    producer.confirm(range(4))
    deliver(found, 0, 1, 1, 2, 3)

    assert broken(found) == ({"duplicates": ["p 1"]} if is_deduplicated else {})


def test_a_message_after_a_later_one_of_its_producer_is_misplaced():
    found, producer = history()
    producer.confirm(range(4))
    deliver(found, 1, 0, 2, 3)

    assert broken(found) == {"misplaced": ["p 0 after 1"]}


def test_a_redelivered_message_is_not_misplaced():
    found, producer = history()
    producer.confirm(range(4))
    deliver(found, 1)
    deliver(found, 0, flagged=True)
    deliver(found, 2, 3)

    assert broken(found) == {}


def test_a_late_answer_of_a_deduplicated_message_changes_no_confirm():
    producer = Producer("p", is_deduplicated=True)
    producer.confirm(producer.send(2))
    producer.fail([0])
    producer.lose_answers(range(2))

    assert producer.count(Outcome.CONFIRMED) == 2
    assert producer.unanswered == set()


def test_a_verdict_names_a_few_of_many_messages():
    found, producer = history(count=100)
    producer.confirm(range(100))

    (verdict,) = found.verdicts()

    assert verdict.lost.count == 100
    assert len(verdict.lost.samples) == SAMPLES


@given(producer=st.sampled_from(["p", "plain 1", "long" * 30]), number=st.integers(0, 10**12))
def test_a_body_tells_producer_and_number_and_no_other_bytes_do(producer: str, number: int):
    content = body(producer, number)

    changed = bytes([content[0] ^ 1]) + content[1:]

    assert message_of(content) == (None if " " in producer else (producer, number))
    assert message_of(changed) != (producer, number)
    assert message_of(content[:-1]) is None


class OneQueue:
    """A queue of a broker that is right: it stores, delivers in order, and takes back what was not acknowledged."""

    def __init__(self) -> None:
        self.ready: deque[tuple[int, bool]] = deque()
        self.unacked: list[int] = []

    def take(self) -> tuple[int, bool] | None:
        if not self.ready:
            return None
        number, flag = self.ready.popleft()
        self.unacked.append(number)
        return number, flag

    def fail_over(self) -> None:
        back = sorted(self.unacked)
        self.unacked.clear()
        self.ready = deque((number, True) for number in [*back, *(number for number, _ in self.ready)])


def run(random: Random, steps: int) -> tuple[History, Producer, OneQueue]:
    """Return the history of a right broker with failovers, drained."""
    producer, queue = Producer("p"), OneQueue()
    found = History([producer], ["taken"])
    for _ in range(steps):
        match random.choice(("send", "send", "take", "take", "acknowledge", "lose", "fail over")):
            case "send":
                (number,) = producer.send(1)
                queue.ready.append((number, False))
                producer.confirm([number])
            case "lose":
                (number,) = producer.send(1)
                if random.random() < 0.5:
                    queue.ready.append((number, False))
                producer.lose_answers([number])
            case "acknowledge":
                queue.unacked.clear()
            case "fail over":
                queue.fail_over()
            case _:
                take(found, queue)
    while take(found, queue):
        pass
    return found, producer, queue


def take(found: History, queue: OneQueue) -> bool:
    taken = queue.take()
    if taken is not None:
        found.deliver("taken", body("p", taken[0]), is_redelivered=taken[1])
    return taken is not None


@given(seed=st.integers(0, 2**32))
def test_a_broker_that_keeps_its_promises_breaks_no_rule_in_any_history(seed: int):
    found, _, _ = run(Random(seed), 60)

    assert broken(found) == {}


@given(seed=st.integers(0, 2**32))
def test_each_broken_promise_is_found_in_any_history(seed: int):
    random = Random(seed)
    found, producer, _ = run(random, 60)

    producer.confirm(producer.send(1))
    assert list(broken(found)) == ["lost"]
    deliver(found, producer.next_number - 1)
    assert broken(found) == {}
    deliver(found, producer.next_number - 1)
    assert list(broken(found)) == ["duplicates"]
    deliver(found, producer.next_number)
    assert list(broken(found)) == ["unexpected", "duplicates"]
