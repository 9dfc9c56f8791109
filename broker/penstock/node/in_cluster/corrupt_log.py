"""The log of a replica that the disk has corrupted: it is set aside, and the replica begins anew with a copy.

The newest corrupt log of a shard is kept below `set-aside`, to find out what the disk did. It is deleted at once where
the disk has no room for it beside a copy.
"""

import asyncio
import shutil
from pathlib import Path
from typing import Final

from penstock.cluster.host import ClusterHost
from penstock.cluster.repairing import leader_to_ask, leads_by
from penstock.kit.clock import Clock
from penstock.kit.logging import logger
from penstock.model.errors import StorageError
from penstock.native import ReplicaIdentity, read_replica
from penstock.node.in_cluster.leaving import AskLeader
from penstock.storage.setting_aside import OF_A_LOG, complete, forget_corrupt, set_aside_corrupt

AGAIN_S: Final = 600.0
"""A disk that corrupts the copy, too, gets the next one after this time."""
MARKED: Final = ".corrupt"
_log = logger("cluster")


class Repairs:
    """The repairs of one replica's log."""

    def __init__(self, host: ClusterHost, ask_leader: AskLeader, clock: Clock) -> None:
        self._host = host
        self._ask_leader = ask_leader
        self._clock = clock
        self._last: float | None = None

    async def may_begin_anew(self, shard: str, directory: Path) -> bool:
        """Return whether the log may be set aside now: another broker leads, and the last time was not just now."""
        now = self._clock.monotonic()
        if self._last is not None and now < self._last + AGAIN_S:
            return False
        try:
            record = await self._host.read_record(shard)
        except StorageError:
            return False
        leader = leader_to_ask(record, await identity_of(directory), self._host.me.name)
        if record is None or leader is None:
            return False
        return leads_by(record, await self._ask_leader(leader, [shard]))

    async def set_aside(self, shard: str, directory: Path) -> None:
        """Move the log away; the replica is closed. Raises StorageError."""
        self._last = self._clock.monotonic()
        identity = await identity_of(directory)
        place = await asyncio.to_thread(_set_aside, directory, "unknown" if identity is None else identity.replica)
        _log.error(
            "corrupt log set aside: its replica begins anew with a copy of the leader's; check the disk",
            shard=shard,
            place="deleted, as the disk is too small for both" if place is None else str(place),
        )


async def identity_of(directory: Path) -> ReplicaIdentity | None:
    """Return the replica that a folder has; None where that cannot be read."""
    try:
        return await asyncio.to_thread(read_replica, str(directory))
    except StorageError:
        return None


def is_marked(directory: Path) -> bool:
    """Return whether a corrupt record was found in a log since it was opened. Blocks."""
    return any(path.name.endswith(MARKED) and OF_A_LOG.fullmatch(path.name) for path in directory.iterdir())


def _set_aside(directory: Path, identity: str) -> Path | None:
    """Return where the log is now; None if it is deleted."""
    forget_corrupt(directory)
    # An attempt before this one may have failed after its first step.
    place = next(iter(complete(directory)), None) or set_aside_corrupt(directory, identity)
    size = sum(path.stat().st_size for path in place.iterdir())
    if shutil.disk_usage(directory.parent).free > size + size // 4:
        return place
    forget_corrupt(directory)
    return None
