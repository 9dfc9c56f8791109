"""The requests of one broker to the leader of the `meta` shard: numbered, and asked again until they are answered.

A request that is asked again has the number that it had, so that a command is carried out once, however many answers
are lost. A name that is not found here is looked for again when this broker has all that was answered elsewhere.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from penstock.cluster.meta.answers import RESPONSES, Answered, Refusal, error_of, refusal_of
from penstock.cluster.meta.applying import Applier
from penstock.cluster.meta.codec import REQUESTS, CodecError
from penstock.cluster.meta.commands import (
    Addresses,
    JoinBroker,
    Joined,
    MetaAnswer,
    MetaCommand,
    Request,
    SessionEndedError,
)
from penstock.cluster.meta.leading import Leader
from penstock.cluster.meta.log import MetaLog, NotLeaderError, UnknownOutcomeError
from penstock.cluster.meta.state import MetaState
from penstock.cluster.record import BrokerName
from penstock.model.errors import (
    FaultError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionFailedError,
    RefusedError,
    StoppedError,
    Thing,
)

RETRY_S: Final = 0.1
"""The time until a leader is asked again, or looked for."""
T = TypeVar("T")


class LeaderLink(Protocol):
    """The way to the leader, wherever it is."""

    async def ask(self, request: bytes) -> bytes:
        """Return the leader's response.

        Raises NotLeaderError when no leader took the request, UnknownOutcomeError when no response came.
        """


async def respond(leader: Leader, request: bytes, epoch: int) -> bytes:
    """Return the response to a request that was sent to the leader of an epoch.

    Raises NotLeaderError, UnknownOutcomeError and StoppedError.
    """
    try:
        return RESPONSES.encode(await leader.request(REQUESTS.decode(request), epoch))
    except CodecError as error:
        way_out = "upgrade the brokers of the cluster to one version"
        return RESPONSES.encode(refusal_of(InvalidArgumentError(Thing("request", ""), f"is unknown: {error}", way_out)))
    except RefusedError as refusal:
        return RESPONSES.encode(refusal_of(refusal))


class Asker:
    """The session of one broker's boot.

    Invariant: `_open` has the numbers that are not answered, so all below the smallest one are.
    """

    def __init__(
        self,
        link: LeaderLink,
        applier: Applier,
        log: MetaLog,
        retry_s: float = RETRY_S,
        is_joined: Callable[[], bool] = lambda: True,
    ) -> None:
        """`is_joined` returns whether the session is known to be this one's: a recovery may have lost its beginning."""
        self._link = link
        self._applier = applier
        self._log = log
        self._retry_s = retry_s
        self._is_joined = is_joined
        self._session = 0
        self._next_number = 1
        self._open: set[int] = set()

    async def join(self, broker: BrokerName, boot: int, addresses: Addresses | None = None) -> int:
        """Begin the session of a broker's boot, and return its number. It waits as long as there is no leader."""
        while True:
            try:
                before = (await self.latest()).brokers.get(broker)
                replaces = None if before is None else before.boot
                command = JoinBroker(broker, boot, replaces, addresses or Addresses())
                answer = await self._ask(Request(0, 0, 0, command))
            except (NotLeaderError, PreconditionFailedError):  # another boot has joined since the state was read
                await asyncio.sleep(self._retry_s)
                continue
            assert isinstance(answer, Joined)
            self._session = answer.session
            return answer.session

    async def submit(self, command: MetaCommand) -> MetaAnswer:
        """Return the answer when the command is committed and applied on this broker.

        It waits as long as there is no leader: a caller that gives up does not know the outcome. Raises the command's
        RefusedError, UnknownOutcomeError when the session has ended, or StoppedError when this broker applies nothing
        any more: the outcome is unknown then, too.
        """
        assert self._session
        number, self._next_number = self._next_number, self._next_number + 1
        self._open.add(number)
        try:
            return await self._ask(Request(self._session, number, min(self._open), command))
        finally:
            self._open.discard(number)

    async def find(self, look: Callable[[MetaState], T]) -> T:
        """Return what `look` finds in this broker's state, or in all that was answered before the call.

        Without a leader it raises what `look` raises here.
        """
        try:
            return look(self._applier.state)
        except NotFoundError:
            with suppress(NotLeaderError, StoppedError):
                await self.latest()
            return look(self._applier.state)

    async def latest(self) -> MetaState:
        """Return the state with all that was answered before the call. Raises NotLeaderError, StoppedError."""
        await self._applier.applied(await self._log.read_index())
        return self._applier.state

    async def _ask(self, request: Request) -> MetaAnswer:
        content = REQUESTS.encode(request)
        while True:
            self._applier.check()  # else no answer could be passed on
            if request.session and not self._is_joined():
                await asyncio.sleep(self._retry_s)
                continue
            try:
                response = RESPONSES.decode(await self._link.ask(content))
            except (NotLeaderError, UnknownOutcomeError):
                await asyncio.sleep(self._retry_s)
                continue
            if isinstance(response, Refusal):
                raise _raised(error_of(response))
            assert isinstance(response, Answered)
            await self._applier.applied(response.position)
            return response.answer


def _raised(refusal: RefusedError) -> RefusedError | FaultError:
    """Return the error for a refusal: a session that ended says nothing about the command."""
    return UnknownOutcomeError() if isinstance(refusal, SessionEndedError) else refusal
