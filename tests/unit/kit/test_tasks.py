"""A bug in a task is reported to its owner and logged once; cancelling is no bug."""

import asyncio
import inspect

import pytest
import structlog

from penstock.kit import spawn
from penstock.kit.tasks import log_bugs_of_callbacks


def test_a_bug_is_handed_to_the_owner_and_logged_once():
    told: list[BaseException] = []

    async def buggy():
        raise AssertionError("impossible")

    async def run():
        await asyncio.wait([spawn(buggy(), name="buggy", on_bug=told.append)])

    with structlog.testing.capture_logs() as logged:
        asyncio.run(run())

    assert [str(bug) for bug in told] == ["impossible"]
    assert [(line["event"], line["task"]) for line in logged] == [("a task failed", "buggy")]


def test_a_cancelled_task_is_no_bug():
    told: list[BaseException] = []

    async def run():
        task = spawn(asyncio.sleep(3_600), name="waiting", on_bug=told.append)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task

    with structlog.testing.capture_logs() as logged:
        task = asyncio.run(run())

    assert task.cancelled()
    assert told == []
    assert logged == []


@pytest.mark.filterwarnings("error")
def test_a_task_that_is_cancelled_before_its_first_step_leaves_nothing_behind():
    begun = []

    async def work():
        begun.append(True)

    async def run():
        coroutine = work()
        task = spawn(coroutine, name="never begun")
        task.cancel()
        await asyncio.wait([task])
        return inspect.getcoroutinestate(coroutine)

    assert asyncio.run(run()) == inspect.CORO_CLOSED
    assert begun == []


def test_a_bug_in_a_callback_is_logged_and_the_loop_goes_on():
    def buggy():
        raise AssertionError("impossible")

    async def run():
        loop = asyncio.get_running_loop()
        log_bugs_of_callbacks(loop)
        loop.call_soon(buggy)
        await asyncio.sleep(0)
        return "went on"

    with structlog.testing.capture_logs() as logged:
        assert asyncio.run(run()) == "went on"

    assert [line["event"] for line in logged] == ["a callback failed"]
