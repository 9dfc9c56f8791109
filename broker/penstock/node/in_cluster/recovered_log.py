"""The log of a broker whose shard an operator has recovered from another replica.

Such a log may have messages that the shard lost, so it is set aside, and the replica begins anew. It is never cut or
deleted for that.
"""

import asyncio
from pathlib import Path

from penstock.cluster.host import ClusterHost
from penstock.cluster.hosted import HostedReplica
from penstock.cluster.recovering import AfterHalt, after_halt, lost_by
from penstock.kit.logging import logger
from penstock.model.errors import StorageError
from penstock.native import ReplicaRole, read_replica
from penstock.storage.setting_aside import complete, set_aside

_log = logger("cluster")


async def leave_lost_log(host: ClusterHost, shard: str, directory: Path) -> None:
    """Set a log aside that was counted as lost while its broker was away, before it is opened. Raises StorageError.

    Without the coordinator it is opened, and halts where it has what its leader lacks.
    """
    await asyncio.to_thread(complete, directory)
    identity = await asyncio.to_thread(read_replica, str(directory))
    if identity is None:
        return
    try:
        record = await host.read_record(shard)
    except StorageError as error:
        _log.warning("coordinator not read before a log was opened", shard=shard, reason=str(error))
        return
    recovery = None if record is None else lost_by(record, identity.replica, identity.promised)
    if recovery is not None:
        await _set_aside(shard, directory, identity.replica)


async def step_after_halt(host: ClusterHost, shard: str, replica: HostedReplica, role: ReplicaRole) -> AfterHalt | None:
    """Return what a halted replica does, as its shard was recovered; None: it waits for an operator."""
    standing = await replica.standing()
    return after_halt(host.known_record(shard), role.halt, standing.promised, standing.log_epoch)


async def close_halted(host: ClusterHost, shard: str, directory: Path, replica: HostedReplica, step: AfterHalt) -> None:
    """Close a halted replica that is to be opened again. Raises StorageError."""
    identity = replica.replica
    await host.close(replica)
    if step is AfterHalt.BEGIN_ANEW:
        await _set_aside(shard, directory, identity)


async def _set_aside(shard: str, directory: Path, identity: str) -> None:
    place = await asyncio.to_thread(set_aside, directory, identity)
    _log.error(
        "log set aside: its shard was recovered from another replica, which may lack messages of this log",
        shard=shard,
        place=str(place),
    )
