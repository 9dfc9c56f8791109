"""The way to the leader of the `meta` shard, over the connections between brokers, and the answers of this broker."""

import struct
from enum import IntEnum
from typing import Final, Protocol

from penstock.cluster.calls import CALL_BYTES_MAX, Calls, Handler, LostCallError, NotCarriedOutError
from penstock.cluster.meta.asking import respond
from penstock.cluster.meta.leading import Leader
from penstock.cluster.meta.log import NotLeaderError, UnknownOutcomeError
from penstock.cluster.meta.replicated_log import ReplicatedMetaLog
from penstock.model.errors import BusyError, FaultError, Thing, TooLargeError

_INDEX: Final = struct.Struct("<Q")


class Method(IntEnum):
    REQUEST = 1
    """A request for the leader: `commands.Request`, answered with a response."""
    READ_INDEX = 2
    """The question for a position with all that was answered before, in 8 bytes."""


class LeaderPlace(Protocol):
    """Where the leader is, as far as this broker knows."""

    def leads(self, shard: bytes) -> bool:
        """Return whether this broker leads."""

    def leader_of(self, shard: bytes) -> int | None:
        """Return the number of the broker that leads."""


class CallingLink:
    """The port `LeaderLink`. The leader is asked through `leader` if that is this broker."""

    def __init__(self, shard: bytes, place: LeaderPlace, calls: Calls) -> None:
        self._shard = shard
        self._place = place
        self._calls = calls
        self.leader: Leader | None = None

    async def ask(self, request: bytes) -> bytes:
        """Return the leader's response. Raises TooLargeError, NotLeaderError and UnknownOutcomeError."""
        size = len(request)
        if size > CALL_BYTES_MAX:
            raise TooLargeError(Thing("request", ""), f"has {size} bytes", size=size, size_max=CALL_BYTES_MAX)
        if self.leader is not None and self._place.leads(self._shard):
            return await respond(self.leader, request)
        return await self._call(Method.REQUEST, request)

    async def ask_read_index(self) -> int:
        """Return the read index of the broker that leads. Raises NotLeaderError when none says it."""
        try:
            (index,) = _INDEX.unpack(await self._call(Method.READ_INDEX, b""))
        except (UnknownOutcomeError, struct.error) as error:
            raise NotLeaderError from error
        return int(index)

    async def _call(self, method: Method, content: bytes) -> bytes:
        broker = self._place.leader_of(self._shard)
        if broker is None:
            raise NotLeaderError
        try:
            return await self._calls.call(broker, method, content)
        except NotCarriedOutError as error:
            raise NotLeaderError from error
        except LostCallError as error:
            raise UnknownOutcomeError from error


def handlers(leader: Leader, log: ReplicatedMetaLog) -> dict[int, Handler]:
    """Return the answers of this broker to calls of others, by method."""

    async def answer_request(request: bytes) -> bytes:
        try:
            return await respond(leader, request)
        except (NotLeaderError, BusyError) as error:
            raise NotCarriedOutError(str(error)) from error
        except FaultError as error:
            raise LostCallError(str(error)) from error

    async def answer_read_index(_: bytes) -> bytes:
        try:
            return _INDEX.pack(await log.own_read_index())
        except FaultError as error:
            raise NotCarriedOutError(str(error)) from error

    return {Method.REQUEST: answer_request, Method.READ_INDEX: answer_read_index}
