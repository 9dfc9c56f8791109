"""A thread that gives way has a low weight, but a weight, and only that thread."""

import os
from concurrent.futures import ThreadPoolExecutor

from penstock.kit.background import NICE_STEPS, give_way


def weight() -> tuple[int, int]:
    """Return the calling thread's scheduling policy and its nice value."""
    return os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)


def test_only_the_thread_that_says_so_gives_way():
    policy, nice = weight()
    with ThreadPoolExecutor(1, initializer=give_way) as threads:
        assert threads.submit(weight).result() == (os.SCHED_BATCH, min(19, nice + NICE_STEPS))
    assert weight() == (policy, nice)


def test_where_it_is_forbidden_the_thread_stays_as_it_is(monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    before = weight()
    give_way()
    assert weight() == before
