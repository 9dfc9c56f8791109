"""The first start of a broker on the data directory of a restored cluster: its replicas get their seats.

The records of all shards are made at the coordinator, which has none of them: each says that this broker's replica is
alone in sync, so that it leads, and the other brokers get copies. A start that follows an interrupted one makes none
twice. A coordinator that has a record without this replica is of a cluster that exists: nothing is changed then.
"""

import asyncio
import secrets
from pathlib import Path
from typing import Final

from penstock.cluster.coordinator import Coordinator, Refused
from penstock.cluster.record import BrokerName, Leader, ReplicaId, ShardRecord
from penstock.cluster.seats import first_record
from penstock.kit.logging import logger
from penstock.native import read_replica
from penstock.node.config import StartError
from penstock.storage.cluster_backup import Restored, RestoredShard, read_restored
from penstock.storage.cluster_json import META

_WAY_OUT: Final = (
    "a backup is restored for a new cluster: stop all brokers, give cluster_coordinator another prefix or directory, "
    "and start this broker before the others, which have empty data directories"
)
_log = logger("cluster")


async def seat_restored(directory: Path, cluster: str, me: BrokerName, coordinator: Coordinator) -> bool:
    """Make the records of the shards that a restore left; return whether it left some.

    They are left until `forget_restored`. Raises StartError and StorageError.
    """
    restored = await asyncio.to_thread(read_restored, directory)
    if restored is None:
        return False
    _check(restored, directory, cluster, me)
    # Looked at before anything is made, and made last: other brokers do nothing without the metadata.
    metadata = next(each for each in restored.shards if each.name == META)
    others = [each for each in restored.shards if each is not metadata]
    wanted = {each.name: await _record(directory, each, me) for each in restored.shards}
    for each in (metadata, *others):
        await _is_made(coordinator, each.name, wanted[each.name])
    for each in (*others, metadata):
        await _make(coordinator, each.name, wanted[each.name])
    _log.warning("restored shards are led by this broker; start the others", cluster=cluster, shards=len(wanted))
    return True


def _check(restored: Restored, directory: Path, cluster: str, me: BrokerName) -> None:
    if restored.cluster != cluster:
        way_out = f"set cluster to '{restored.cluster}'"
        raise StartError(f"{directory} was restored from a backup of cluster '{restored.cluster}'; {way_out}")
    absent = [each for each in restored.shards if me not in each.brokers]
    if absent:
        way_out = f"choose another as cluster_broker: {', '.join(absent[0].brokers)}"
        raise StartError(f"{directory} has shard '{absent[0].name}', which has no place at broker '{me}'; {way_out}")


async def _record(directory: Path, shard: RestoredShard, me: BrokerName) -> ShardRecord:
    """Return the record of a shard, above whose epoch the first election is."""
    identity = await asyncio.to_thread(read_replica, str(directory / shard.folder))
    if identity is None:
        raise StartError(f"{directory / shard.folder} has no replica; restore the backup again")
    leader = Leader(broker=me, replica=identity.replica, boot=0)
    return first_record(leader, [BrokerName(broker) for broker in shard.brokers], _draw, shard.epoch)


async def _is_made(coordinator: Coordinator, shard: str, wanted: ShardRecord) -> bool:
    """Return whether a start before made the record of a shard. Raises StartError where it is of another replica."""
    found = await coordinator.read(shard)
    if found is None:
        return False
    if wanted.leader.replica not in found.record.replicas:  # it was drawn by the restore
        raise StartError(f"the coordinator has a record of shard '{shard}', so that its cluster exists; {_WAY_OUT}")
    return True


async def _make(coordinator: Coordinator, shard: str, wanted: ShardRecord) -> None:
    if await _is_made(coordinator, shard, wanted):
        return
    outcome = await coordinator.change(shard, None, wanted)
    if outcome is Refused.UNKNOWN:
        raise StartError(f"the coordinator did not answer when the record of shard '{shard}' was made; start again")
    if outcome is Refused.CONFLICT:
        await _is_made(coordinator, shard, wanted)


def _draw() -> ReplicaId:
    return secrets.token_hex(16)
