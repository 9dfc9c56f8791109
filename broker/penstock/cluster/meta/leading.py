"""The leader of the `meta` shard on one broker: it decides requests in rounds and appends their records.

A round takes all requests that wait, decides them in order on a pending copy of the state, appends their records as one
and applies them as every broker does; then it answers. Also a round without records asks the log whether this broker
still leads, so that no answer comes from a state that is out of date.

A request names the epoch whose leader it was sent to. One that was under way when that epoch ended was perhaps sent
again and refused by the next leader, so it is not carried out when this broker leads a later one.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.cluster.meta.answers import Answered
from penstock.cluster.meta.applying import Applier
from penstock.cluster.meta.changes import Record
from penstock.cluster.meta.codec import RECORDS
from penstock.cluster.meta.commands import MetaAnswer, Request
from penstock.cluster.meta.decide import decide
from penstock.cluster.meta.held_back import check_known
from penstock.cluster.meta.log import MetaLog, NotLeaderError, UnknownOutcomeError
from penstock.cluster.meta.pending import PendingState
from penstock.kit.logging import logger
from penstock.model.errors import BusyError, FaultError, RefusedError, StoppedError, Thing

REQUESTS_MAX: Final = 4_096
"""Requests that wait for the next round. More are refused."""
_Result = MetaAnswer | RefusedError
_log = logger("meta")


@dataclass(frozen=True, slots=True)
class _Waiting:
    request: Request
    epoch: int
    answered: "asyncio.Future[Answered]"

    def fail(self, error: Exception) -> None:
        if not self.answered.done():
            self.answered.set_exception(error)


class Leader:
    """Runs from `run` until it is cancelled, or a bug. Invariant: every request gets exactly one answer."""

    def __init__(
        self,
        log: MetaLog,
        applier: Applier,
        vhost_number_min: Callable[[], int] = int,
        protocol: Callable[[], int] = lambda: 1,
    ) -> None:
        """`vhost_number_min` returns a number that no virtual host had whose creation a recovery has lost.

        `protocol` returns the version of the protocol that all brokers know.
        """
        self._log = log
        self._applier = applier
        self._protocol = protocol
        self._vhost_number_min = vhost_number_min
        self._waiting: list[_Waiting] = []
        self._has_work = asyncio.Event()
        self._is_over = False

    async def request(self, request: Request, epoch: int) -> Answered:
        """Return the answer to a request for the leader of an epoch when its record is committed and applied here.

        Raises the command's RefusedError, NotLeaderError when it was not carried out, UnknownOutcomeError when it may
        have been or may be, StoppedError after the end.
        """
        if self._is_over:
            raise StoppedError(Thing("shard", "meta"), "its leader has stopped on this broker")
        if len(self._waiting) >= REQUESTS_MAX:
            raise BusyError(Thing("shard", "meta"), f"has {REQUESTS_MAX} requests that wait")
        waiting = _Waiting(request, epoch, asyncio.get_running_loop().create_future())
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
            self._is_over = True
            for waiting in [*round_, *self._waiting]:
                waiting.fail(UnknownOutcomeError())

    async def _run_round(self, round_: list[_Waiting]) -> None:
        try:
            term = await self._log.begin()
            for waiting in round_:
                if waiting.epoch != term.epoch:
                    waiting.fail(NotLeaderError())
            round_ = [waiting for waiting in round_ if waiting.epoch == term.epoch]
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
        failed: dict[int, RefusedError] = {}
        while True:
            decided = self._try_to_decide(round_, failed)
            if decided is not None:
                return decided

    def _try_to_decide(
        self, round_: list[_Waiting], failed: dict[int, RefusedError]
    ) -> tuple[list[_Result], list[bytes]] | None:
        """Decide about all requests of a round; None if a rule failed at one, which is noted and refused then.

        It may have changed a part of the pending state. Asked again, it would stop one leader after the other.
        """
        state = PendingState(self._applier.state, self._vhost_number_min())
        results: list[_Result] = []
        contents: list[bytes] = []
        for index, waiting in enumerate(round_):
            if index in failed:
                results.append(failed[index])
                continue
            try:
                check_known(waiting.request.command, self._protocol())
                decided = decide(state, waiting.request)
                if isinstance(decided, Record):
                    contents.append(RECORDS.encode(decided))
                    decided = decided.answer
            except RefusedError as refusal:
                results.append(refusal)
            except Exception as bug:  # noqa: BLE001 - it concerns one request, and the others go on
                command = type(waiting.request.command).__name__
                _log.error("a command cannot be decided", command=command, exc_info=bug)
                rule, way_out = "cannot be decided, because of a bug", "report it with the log of the broker"
                failed[index] = RefusedError(Thing("command", command), rule, way_out)
                return None
            else:
                results.append(decided)
        return results, contents
