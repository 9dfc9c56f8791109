"""Kills work before any of its steps on files, in a process of its own, as a machine or `kill -9` would."""

import os
import sys
from collections.abc import Callable

STEPS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "shutil.rmtree", "os.listdir"}
KILLED = 9
STEPS_MAX = 1_000


def killed_before(step: int, work: Callable[[], object]) -> bool:
    """Do the work in a process that ends before this step of it; return whether there was such a step."""
    child = os.fork()
    if child == 0:
        count = 0

        def hook(event: str, _: tuple[object, ...]) -> None:
            nonlocal count
            if event in STEPS:
                count += 1
                if count == step:
                    os._exit(KILLED)

        sys.addaudithook(hook)
        try:
            work()
        except BaseException:  # noqa: BLE001 - the child must not go on with the tests
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, KILLED), "the work failed"
    return code == KILLED
