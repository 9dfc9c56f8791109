"""A thread that gives way has the idle scheduling policy, and only that thread."""

import os
from concurrent.futures import ThreadPoolExecutor

from penstock.kit.background import give_way


def test_only_the_thread_that_says_so_gives_way():
    ours = os.sched_getscheduler(0)
    with ThreadPoolExecutor(1, initializer=give_way) as threads:
        assert threads.submit(os.sched_getscheduler, 0).result() == os.SCHED_IDLE
    assert os.sched_getscheduler(0) == ours


def test_where_it_is_forbidden_the_thread_stays_as_it_is(monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    give_way()
