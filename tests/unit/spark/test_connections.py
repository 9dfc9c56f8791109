"""Kept connections: one for each key and process, bounded, and never one that failed or was idle for long."""

from itertools import count

from penstock.spark.connections import IDLE_SECONDS_MAX, Connections


class Process:
    """A process whose clock and id the test sets; its connections are numbers."""

    def __init__(self, most: int = 4) -> None:
        self.now = 0.0
        self.pid = 1
        self._numbers = count()
        self.connections: Connections[int] = Connections(most, lambda: self.now, lambda: self.pid)

    def take(self, key: str) -> int:
        return self.connections.take(key, lambda: next(self._numbers))


def test_a_connection_is_kept_for_its_key() -> None:
    process = Process()

    assert [process.take(key) for key in "aabab"] == [0, 0, 1, 0, 1]


def test_one_that_failed_is_replaced_and_its_successor_is_not_dropped_with_it() -> None:
    process = Process()
    failed = process.take("a")

    process.connections.drop("a", failed)
    fresh = process.take("a")
    process.connections.drop("a", failed)

    assert fresh != failed
    assert process.take("a") == fresh


def test_one_that_was_idle_for_long_is_replaced() -> None:
    process = Process()
    first = process.take("a")
    process.now += IDLE_SECONDS_MAX
    process.connections.used("a", first)
    process.now += IDLE_SECONDS_MAX

    assert process.take("a") == first
    process.now += IDLE_SECONDS_MAX + 1
    assert process.take("a") != first


def test_a_fork_uses_none_of_its_parent() -> None:
    process = Process()
    of_parent = process.take("a")

    process.pid = 2

    assert process.take("a") != of_parent


def test_the_one_that_was_not_used_for_the_longest_makes_room() -> None:
    process = Process(most=2)
    first = process.take("a")
    process.take("b")
    process.take("a")
    process.take("c")

    assert process.take("a") == first
    assert process.take("b") == 3
