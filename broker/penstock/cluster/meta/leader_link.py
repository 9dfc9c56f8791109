"""The way to the leader of the `meta` shard, over the connections between brokers, and the answers of this broker."""

import struct
from enum import IntEnum, unique
from typing import Final, Protocol

from penstock.cluster.calls import CALL_BYTES_MAX, Calls, Handler, LostCallError, NotCarriedOutError
from penstock.cluster.meta.asking import respond
from penstock.cluster.meta.leading import Leader
from penstock.cluster.meta.log import NotLeaderError, UnknownOutcomeError
from penstock.cluster.meta.replicated_log import ReplicatedMetaLog
from penstock.model.errors import BusyError, FaultError, Thing, TooLargeError

_INDEX: Final = struct.Struct("<Q")
_EPOCH: Final = struct.Struct("<Q")

REQUEST_BYTES_MAX: Final = CALL_BYTES_MAX - _EPOCH.size


@unique
class Method(IntEnum):
    REQUEST = 1
    """The epoch of the leader that is asked, in 8 bytes, and a request: `commands.Request`; a response."""
    READ_INDEX = 2
    """The question for a position with all that was answered before, in 8 bytes."""
    CHECKPOINT = 3
    """The question for a part of a broker's checkpoint: see `checkpoint_copies`."""
    CHECKPOINT_POSITION = 4
    """The question up to where a broker has a checkpoint on the disk, answered in 8 bytes."""
    SERVED = 5
    """A position in 8 bytes, and a virtual host's name: answered when its queues there have everything up to it."""
    PROGRESS = 6
    """How far replicas are whose leader is asked: `shard_calls.ProgressQuestion`, and its answer."""
    HAND_OVER = 7
    """Another broker is to lead a shard that the asked one leads: `shard_calls.HandOverQuestion`, and its answer."""
    STANDING = 8
    """What the asked broker has of a shard: `shard_calls.StandingQuestion`, and its answer."""
    COUNTS = 9
    """The counts of queues that the asked broker leads: `shard_calls.CountsQuestion`, and its answer."""
    LIST = 10
    """Positions and checksums of a shard's records, from one position in 8 bytes up to another: see `comparisons`."""
    DIFFERENCES = 11
    """Replicas of the asked broker that differ: `shard_calls.DifferencesQuestion`, and its answer."""
    TOTALS = 12
    """The messages in virtual hosts that the asked broker leads: `shard_calls.TotalsQuestion`, and its answer."""


OF_LEADER: Final = (Method.REQUEST, Method.READ_INDEX)
"""They are asked of the next leader when another broker leads."""


class LeaderPlace(Protocol):
    """Where the leader is, as far as this broker knows."""

    def epoch_of(self, shard: bytes) -> int | None:
        """Return the epoch that this broker leads."""

    def leader_of(self, shard: bytes) -> tuple[int, int] | None:
        """Return the number of the broker that leads, and its epoch."""


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
        if size > REQUEST_BYTES_MAX:
            raise TooLargeError(Thing("request", ""), f"has {size} bytes", size=size, size_max=REQUEST_BYTES_MAX)
        epoch = self._place.epoch_of(self._shard)
        if self.leader is not None and epoch is not None:
            return await respond(self.leader, request, epoch)
        broker, epoch = self._leader()
        return await self._call(broker, Method.REQUEST, _EPOCH.pack(epoch) + request)

    async def ask_read_index(self) -> int:
        """Return the read index of the broker that leads. Raises NotLeaderError when none says it."""
        try:
            broker, _ = self._leader()
            (index,) = _INDEX.unpack(await self._call(broker, Method.READ_INDEX, b""))
        except (UnknownOutcomeError, struct.error) as error:
            raise NotLeaderError from error
        return int(index)

    def _leader(self) -> tuple[int, int]:
        leader = self._place.leader_of(self._shard)
        if leader is None:
            raise NotLeaderError
        return leader

    async def _call(self, broker: int, method: Method, content: bytes) -> bytes:
        try:
            return await self._calls.call(broker, method, content)
        except NotCarriedOutError as error:
            raise NotLeaderError from error
        except LostCallError as error:
            raise UnknownOutcomeError from error


def handlers(leader: Leader, log: ReplicatedMetaLog) -> dict[int, Handler]:
    """Return the answers of this broker to calls of others, by method."""

    async def answer_request(content: bytes) -> bytes:
        try:
            (epoch,) = _EPOCH.unpack_from(content)
            return await respond(leader, content[_EPOCH.size :], epoch)
        except (NotLeaderError, BusyError, struct.error) as error:
            raise NotCarriedOutError(str(error)) from error
        except FaultError as error:
            raise LostCallError(str(error)) from error

    async def answer_read_index(_: bytes) -> bytes:
        try:
            return _INDEX.pack(await log.own_read_index())
        except FaultError as error:
            raise NotCarriedOutError(str(error)) from error

    return {Method.REQUEST: answer_request, Method.READ_INDEX: answer_read_index}
