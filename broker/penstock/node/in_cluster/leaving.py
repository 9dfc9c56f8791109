"""A broker that is not to have a replica of a shard any more: when its replica is closed, and when its log is deleted.

The leader takes the replica out of the record first. A log is deleted only once no leader can count it: it is closed,
so that it acknowledges nothing any more; then the leader says that it has no acknowledgement of it, and the record
names the same leader and not the replica after that. A later leader counts what it is told in its own epoch alone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from penstock.cluster.host import ClusterHost
from penstock.cluster.record import BrokerName, ReplicaId
from penstock.cluster.shard_calls import ShardReport
from penstock.kit.logging import logger
from penstock.model.errors import StorageError
from penstock.native import read_replica
from penstock.storage.leaving import delete_log

AskLeader: TypeAlias = Callable[[BrokerName, Sequence[str]], Awaitable[Sequence[ShardReport]]]
"""Returns what a broker says of shards that it leads; nothing where it does not answer."""
_log = logger("cluster")


async def is_named(host: ClusterHost, shard: str, directory: Path) -> bool:
    """Return whether the record names the replica in a folder, if there is one, or may name it. Raises StorageError."""
    identity = await asyncio.to_thread(read_replica, str(directory))
    if identity is None:
        return False
    try:
        record = await host.read_record(shard)
    except StorageError as error:
        _log.warning("coordinator not read before a log was opened", shard=shard, reason=str(error))
        return True
    return record is None or identity.replica in record.replicas


async def delete_left(host: ClusterHost, ask: AskLeader, shard: str, directory: Path) -> bool:
    """Delete the log of a closed replica if no leader can count it; return whether there is none any more.

    Raises StorageError.
    """
    identity = await asyncio.to_thread(read_replica, str(directory))
    if identity is None:
        return True
    try:
        epoch = await _epoch_without(host, shard, identity.replica)
        if epoch is None:
            return False
        record = await host.read_record(shard)
        reports = () if record is None else await ask(BrokerName(record.leader.broker), [shard])
        is_uncounted = any(each.epoch == epoch and identity.replica not in each.acknowledged for each in reports)
        if not is_uncounted or await _epoch_without(host, shard, identity.replica) != epoch:
            return False
    except StorageError as error:
        _log.warning("coordinator not read before a log is deleted", shard=shard, reason=str(error))
        return False
    await asyncio.to_thread(delete_log, directory)
    _log.info("log of a replica deleted, as it is on another broker now", shard=shard, replica=identity.replica)
    return True


async def _epoch_without(host: ClusterHost, shard: str, replica: ReplicaId) -> int | None:
    """Return the epoch of the record, if it does not name a replica. Raises StorageError."""
    record = await host.read_record(shard)
    return None if record is None or replica in record.replicas else record.epoch
