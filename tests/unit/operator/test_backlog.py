"""The backlog against a simple model, and its rules one by one. Time is passed in."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock_operator.engine.backlog import BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_MIN, Backlog, Key

KEYS = [Key("Queue", "default", name) for name in "abc"]
GROUPS = {**dict.fromkeys(KEYS, 1), KEYS[2]: 2}


def test_a_key_that_is_added_twice_is_given_out_once() -> None:
    backlog = Backlog()
    backlog.add(KEYS[0], 1)
    backlog.add(KEYS[0], 2)

    assert backlog.take(5) == KEYS[0]
    assert backlog.take(5) is None


def test_the_earlier_time_counts() -> None:
    backlog = Backlog()
    backlog.add(KEYS[0], 10)
    backlog.add(KEYS[0], 1)

    assert backlog.take(1) == KEYS[0]
    backlog.finished(KEYS[0], 1, None)
    assert backlog.take(20) is None


def test_a_key_that_is_added_while_it_is_taken_comes_again_afterwards() -> None:
    backlog = Backlog()
    backlog.add(KEYS[0], 1)
    backlog.take(1)
    backlog.add(KEYS[0], 1)

    assert backlog.take(2) is None
    backlog.finished(KEYS[0], 2, None)
    assert backlog.take(2) == KEYS[0]


def test_failures_come_back_later_each_time_up_to_a_bound() -> None:
    backlog = Backlog()
    delays = []
    now = 0.0
    backlog.add(KEYS[0], now)
    for _ in range(12):
        assert backlog.take(now) == KEYS[0]
        delay = backlog.failed(KEYS[0], now)
        delays.append(delay)
        now += delay

    assert delays[:3] == [BACKOFF_SECONDS_MIN, 2 * BACKOFF_SECONDS_MIN, 4 * BACKOFF_SECONDS_MIN]
    assert delays[-1] == BACKOFF_SECONDS_MAX


def test_a_success_makes_the_next_failure_the_first() -> None:
    backlog = Backlog()
    for _ in range(3):
        backlog.failed(KEYS[0], 0)
    backlog.finished(KEYS[0], 0, None)

    assert backlog.failed(KEYS[0], 0) == BACKOFF_SECONDS_MIN


def test_a_group_with_many_keys_leaves_the_next_worker_to_another_one() -> None:
    """Its broker may hang, and hold each worker for seconds."""
    backlog = Backlog(group_of=lambda key: key.namespace)
    for number in range(100):
        backlog.add(Key("Queue", "hangs", f"q{number}"), 0)
    assert [backlog.take(1) for _ in range(3)] == [Key("Queue", "hangs", name) for name in ("q0", "q1", "q10")]
    backlog.add(Key("Queue", "other", "q"), 1)
    backlog.add(Key("Queue", "other", "r"), 1)

    assert [backlog.take(1), backlog.take(1)] == [Key("Queue", "other", "q"), Key("Queue", "other", "r")]
    assert backlog.take(1) == Key("Queue", "hangs", "q11")


def test_one_group_alone_has_all_workers() -> None:
    backlog = Backlog(group_of=lambda key: key.namespace)
    for key in KEYS:
        backlog.add(key, 0)

    assert [backlog.take(1) for _ in KEYS] == KEYS


class BacklogMachine(RuleBasedStateMachine):
    """The model: when each key is due, and which are taken."""

    def __init__(self) -> None:
        super().__init__()
        self.backlog = Backlog(group_of=GROUPS.__getitem__)
        self.due: dict[Key, float] = {}
        self.taken: set[Key] = set()
        self.now = 0.0

    @rule(key=st.sampled_from(KEYS), delay=st.integers(0, 5))
    def add(self, key: Key, delay: int) -> None:
        self.backlog.add(key, self.now + delay)
        self.due[key] = min(self.due.get(key, self.now + delay), self.now + delay)

    @rule(seconds=st.integers(0, 3))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @rule()
    def take(self) -> None:
        ready = {key: at for key, at in self.due.items() if at <= self.now and key not in self.taken}
        found = self.backlog.take(self.now)
        if not ready:
            assert found is None
        else:
            assert found in ready
            loads = {key: sum(GROUPS[key] == GROUPS[other] for other in self.taken) for key in ready}
            assert loads[found] == min(loads.values())
            assert ready[found] == min(at for key, at in ready.items() if GROUPS[key] == GROUPS[found])
            del self.due[found]
            self.taken.add(found)

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), again=st.none() | st.integers(0, 4))
    def finish(self, data: st.DataObject, again: int | None) -> None:
        key = data.draw(st.sampled_from(sorted(self.taken)))
        self.backlog.finished(key, self.now, again)
        self.taken.remove(key)
        if again is not None:
            self.due[key] = min(self.due.get(key, self.now + again), self.now + again)

    @invariant()
    def holds(self) -> None:
        self.backlog.check_invariants()
        assert len(self.backlog) == len(self.due)


TestBacklogMachine = BacklogMachine.TestCase
TestBacklogMachine.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
