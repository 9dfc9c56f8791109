"""The end of a broker in a cluster: a stop that is marked as clean leaves nothing to a page cache.

It may be asked for before the broker has joined.
"""

import asyncio
import os
from pathlib import Path

import pytest

from penstock.node.config import StartError
from penstock.node.in_cluster.parts import _unless_asked, sync_logs
from penstock.storage import DataDirectory


def test_a_stop_syncs_the_logs_of_all_directories_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.add(os.fstat(descriptor).st_ino))
    with DataDirectory.open(tmp_path) as directory:
        paths = [tmp_path / "meta" / "msgs.0", directory.vhost_directory("made in this run") / "msgs.0"]
        for path in paths:
            path.parent.mkdir()
            path.touch()

        sync_logs(directory)

        assert synced == {path.stat().st_ino for path in paths}


def test_a_start_that_waits_for_other_brokers_ends_when_a_stop_is_asked_for() -> None:
    async def start() -> list[str]:
        ended: list[str] = []
        asked = asyncio.Event()

        async def wait_for_others() -> None:
            asyncio.get_running_loop().call_soon(asked.set)
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("the step")

        with pytest.raises(StartError, match="was stopped before it had joined"):
            await _unless_asked(asked, wait_for_others())
        await asyncio.sleep(0)  # the task itself is not cancelled
        return [*ended, "the start"]

    assert asyncio.run(start()) == ["the step", "the start"]


def test_a_start_that_is_cancelled_is_no_stop_that_was_asked_for() -> None:
    async def start() -> None:
        waiting = asyncio.ensure_future(_unless_asked(asyncio.Event(), asyncio.Event().wait()))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(start())
