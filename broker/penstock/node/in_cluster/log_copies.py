"""Copies of the logs of virtual hosts for a backup, from this broker's replicas.

A copy has everything that was confirmed before it was asked for. The coordinator says who leads, and that leader where
its log ends: all that was confirmed before is below. This broker's replica is copied once it knows that as committed.
"""

import asyncio
from contextlib import suppress
from typing import Final

from penstock.cluster.host import ClusterHost
from penstock.cluster.hosted import HostedReplica
from penstock.cluster.meta.member import MetaMember
from penstock.cluster.record import BrokerName
from penstock.cluster.shard_calls import PROGRESS, ProgressQuestion
from penstock.kit.logging import logger
from penstock.model.errors import PreconditionFailedError, StorageError, Thing
from penstock.model.names import VhostName
from penstock.native import ReplicaBackup

READS_MAX: Final = 16
"""Questions to the coordinator, and to leaders, at once."""
CAUGHT_UP_S: Final = 20.0
"""The time in which a leader has to answer, and this broker's replica has to have its records."""
LOOK_S: Final = 0.1
_log = logger("cluster")


class LogCopies:
    def __init__(self, host: ClusterHost, member: MetaMember, caught_up_s: float = CAUGHT_UP_S) -> None:
        self._host = host
        self._member = member
        self._caught_up_s = caught_up_s
        self._at_once = asyncio.Semaphore(READS_MAX)

    async def copy(self, vhost: VhostName, shard: str, replica: HostedReplica) -> ReplicaBackup:
        """Fix a copy with all that was confirmed before.

        Raises PreconditionFailedError where no broker leads, or this replica lags, and StorageError.
        """
        end: int | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(self._caught_up_s):
                while (end := await self._end(shard, replica)) is None:  # noqa: ASYNC110 (another broker knows it)
                    await asyncio.sleep(LOOK_S)
                while await _committed(replica) < end and replica.role.halted is None:  # noqa: ASYNC110 (not reported)
                    await asyncio.sleep(LOOK_S)
        if end is None or replica.committed < end:
            me = self._host.me.name
            rule = "is led by no broker that answers" if end is None else f"has a replica at broker '{me}' that lags"
            way_out = "see `penstock cluster status`, and ask a broker whose replicas are in sync"
            raise PreconditionFailedError(Thing("vhost", vhost), f"cannot be backed up: it {rule}", way_out)
        return await replica.begin_backup()

    async def _end(self, shard: str, replica: HostedReplica) -> int | None:
        """Return where the log of the leader ends; None without an answer of the one that leads now."""
        async with self._at_once:
            try:
                record = await self._host.read_record(shard)
            except StorageError as error:
                _log.warning("coordinator not read for a backup", shard=shard, reason=str(error))
                return None
            if record is None:
                return None
            leader = BrokerName(record.leader.broker)
            if leader == self._host.me.name:
                own = await asyncio.to_thread(replica.progress)
                return own.end if own is not None and own.epoch == record.epoch else None
            answer = await PROGRESS.ask(self._member, leader, ProgressQuestion((shard,)))
            reports = () if answer is None else answer.shards
            return next((each.end for each in reports if each.epoch == record.epoch), None)


async def _committed(replica: HostedReplica) -> int:
    """Return how far a replica with queues knows its log as committed, which it does not report."""
    replica.take_standing(await replica.standing())
    return replica.committed
