"""The beats of a broker, and the sessions that it sees, with a coordinator in memory and a clock that the test sets."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from penstock.cluster.beating import changes, keep_beating
from penstock.cluster.coordinator import UnreachableError
from penstock.cluster.sessions import SESSION_S
from penstock.model.errors import Thing


class Beats:
    """A coordinator that only takes beats, and the clock."""

    def __init__(self) -> None:
        self.seen: dict[str, str] = {"mq-1": "a"}
        self.is_reachable = True
        self.time = 0.0

    async def beat(self, broker: str, boot: int) -> None:
        if not self.is_reachable:
            raise UnreachableError(Thing("coordinator", "here"), "cannot be reached")
        self.seen[broker] = f"{boot}"

    async def beats(self) -> Mapping[str, str]:
        return dict(self.seen)

    def monotonic(self) -> float:
        return self.time


async def look(turns: int = 5) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


def test_a_session_ends_once_and_is_alive_again_once() -> None:
    async def run() -> None:
        beats, heard = Beats(), list[tuple[str, bool]]()
        work = keep_beating(
            cast(Any, beats), "mq-0", 1, lambda *change: heard.append(change), cast(Any, beats), beat_s=0
        )
        beating = asyncio.ensure_future(work)
        await look()
        assert heard == []
        beats.time = SESSION_S
        await look()
        assert heard == [("mq-1", False)], "its own beat stays the same, too"
        beats.seen["mq-1"] = "b"
        await look()
        assert heard == [("mq-1", False), ("mq-1", True)]

        beats.is_reachable = False
        beats.time = 2 * SESSION_S
        await look()
        beats.is_reachable = True
        await look()
        assert len(heard) == 2
        beating.cancel()

    asyncio.run(run())


def test_changes_between_two_looks() -> None:
    before, now = frozenset({"a", "b"}), frozenset({"b", "c"})

    assert list(changes(before, now)) == [("c", False), ("a", True)]
