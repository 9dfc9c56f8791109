"""The log of the `meta` shard is shortened: its leader has records settled, and each broker removes them by itself.

The leader asks the brokers in sync up to where they have a checkpoint on the disk: none of them needs the log below the
lowest of these positions. A broker that is not in sync is not waited for: it goes on from a checkpoint of another one.
Each broker removes only what its own checkpoint has.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from penstock.cluster.calls import LostCallError, NotCarriedOutError
from penstock.cluster.hosted import HostedReplica, NotAppended
from penstock.cluster.meta.files import MetaFiles
from penstock.kit.logging import logger
from penstock.model.errors import StorageError

LOOK_S: Final = 10.0
"""After a checkpoint, or after this time, it is looked again whether there is something to remove."""
_POSITION: Final = struct.Struct("<Q")
_log: Final = logger("meta")
Ask = Callable[[int], Awaitable[bytes]]
"""Asks the broker of a number for its checkpoint's position. Raises NotCarriedOutError and LostCallError."""


def encode_position(position: int) -> bytes:
    return _POSITION.pack(position)


def settled_until(own: int, others: Sequence[bytes | None]) -> int:
    """Return up to where no broker in sync needs the log: 0 if one of them did not answer."""
    positions = [own]
    for answer in others:
        if answer is None or len(answer) != _POSITION.size:
            return 0
        positions.append(_POSITION.unpack(answer)[0])
    return min(positions)


class Shortener:
    """Runs from `run` until it is cancelled."""

    def __init__(self, replica: HostedReplica, files: MetaFiles, me: int, ask: Ask, look_s: float = LOOK_S) -> None:
        """`me` is the number of this broker."""
        self._replica = replica
        self._files = files
        self._me = me
        self._ask = ask
        self._look_s = look_s
        self._settled = 0
        """Up to where this broker had records settled as the leader."""

    async def run(self) -> None:
        while True:
            checkpointed = self._files.checkpointed
            try:
                while await self._replica.fold(self._files.checkpoint):
                    pass
                await self._settle()
            except StorageError as error:
                _log.warning("log not shortened", reason=str(error))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._look_s):
                    await checkpointed.wait()

    async def _settle(self) -> None:
        """Have records settled if this broker leads. Without an answer it is tried again later."""
        epoch, own = self._replica.role.epoch, self._files.checkpoint
        if epoch is None or own <= self._settled:
            return
        until = settled_until(own, [await self._position_of(broker) for broker in await self._others_in_sync()])
        if until <= self._settled:
            return
        appended = await self._replica.settle(epoch, until)
        if not isinstance(appended, NotAppended):
            self._settled = until

    async def _others_in_sync(self) -> list[int]:
        record = await self._replica.record()
        if record is None:
            return []
        in_sync = {holder.broker for holder in record.replicas if holder.replica in record.in_sync}
        return sorted(in_sync - {self._me})

    async def _position_of(self, broker: int) -> bytes | None:
        try:
            return await self._ask(broker)
        except (NotCarriedOutError, LostCallError):
            return None
