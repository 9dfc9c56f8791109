"""The leader of the `meta` shard on one broker: it decides requests in rounds and appends their records.

A round takes all requests that wait, decides them in order on a pending copy of the state, appends their records as one
and applies them as every broker does; then it answers. Also a round without records asks the log whether this broker
still leads, so that no answer comes from a state that is out of date.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from penstock.cluster.meta.answers import Answered
from penstock.cluster.meta.applying import Applier
from penstock.cluster.meta.changes import Record
from penstock.cluster.meta.codec import RECORDS
from penstock.cluster.meta.commands import MetaAnswer, Request
from penstock.cluster.meta.decide import decide
from penstock.cluster.meta.log import MetaLog, NotLeaderError, UnknownOutcomeError
from penstock.cluster.meta.pending import PendingState
from penstock.model.errors import BusyError, FaultError, RefusedError, Thing

REQUESTS_MAX: Final = 4_096
"""Requests that wait for the next round. More are refused."""
_Result = MetaAnswer | RefusedError


@dataclass(frozen=True, slots=True)
class _Waiting:
    request: Request
    answered: "asyncio.Future[Answered]"

    def fail(self, error: Exception) -> None:
        if not self.answered.done():
            self.answered.set_exception(error)


class Leader:
    """Runs from `run` until it is cancelled. Invariant: every request gets exactly one answer."""

    def __init__(self, log: MetaLog, applier: Applier) -> None:
        self._log = log
        self._applier = applier
        self._waiting: list[_Waiting] = []
        self._has_work = asyncio.Event()

    async def request(self, request: Request) -> Answered:
        """Return the answer when the request's record is committed and applied here.

        Raises the command's RefusedError, NotLeaderError when it was not carried out, UnknownOutcomeError when it may
        have been or may be.
        """
        if len(self._waiting) >= REQUESTS_MAX:
            raise BusyError(Thing("shard", "meta"), f"has {REQUESTS_MAX} requests that wait")
        waiting = _Waiting(request, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._has_work.set()
        return await waiting.answered

    async def run(self) -> None:
        round_: list[_Waiting] = []
        try:
            while True:
                await self._has_work.wait()
                self._has_work.clear()
                round_, self._waiting = self._waiting, []
                await self._run_round(round_)
        finally:
            for waiting in [*round_, *self._waiting]:
                waiting.fail(UnknownOutcomeError())

    async def _run_round(self, round_: list[_Waiting]) -> None:
        try:
            term = await self._log.begin()
            await self._applier.applied(term.begins_after)
            results, contents = self._decide(round_)
            position = await self._log.append(term, contents)
            await self._applier.applied(position)
        except FaultError as fault:
            for waiting in round_:
                waiting.fail(fault if isinstance(fault, NotLeaderError) else UnknownOutcomeError())
            return
        for waiting, result in zip(round_, results, strict=True):
            if isinstance(result, RefusedError):
                waiting.fail(result)
            elif not waiting.answered.done():
                waiting.answered.set_result(Answered(position, result))

    def _decide(self, round_: list[_Waiting]) -> tuple[list[_Result], list[bytes]]:
        state = PendingState(self._applier.state)
        results: list[_Result] = []
        contents: list[bytes] = []
        for waiting in round_:
            try:
                decided = decide(state, waiting.request)
            except RefusedError as refusal:
                results.append(refusal)
                continue
            if isinstance(decided, Record):
                contents.append(RECORDS.encode(decided))
                decided = decided.answer
            results.append(decided)
        return results, contents
