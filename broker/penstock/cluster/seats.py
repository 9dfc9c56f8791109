"""Which replicas the record of a shard names at first, and how many of them have to be in sync.

A cluster begins with one replica that has everything, because the others' disks are blank. The number that has to be in
sync grows to a majority once so many are: no replica then leads without what was committed.
"""

import secrets
from collections.abc import Callable, Sequence

from penstock.cluster.record import BrokerName, Leader, ReplicaId, ShardRecord


def draw_epoch() -> int:
    """Return a number below which no epoch of a new shard is.

    Logs whose epochs have equal numbers count as equal. If a record is lost and made anew, for a blank disk, its epochs
    must not have the numbers of those before: replicas with older ones halt.
    """
    return secrets.randbits(40) << 20


def first_record(
    leader: Leader, others: Sequence[BrokerName], draw: Callable[[], ReplicaId], epoch: int
) -> ShardRecord:
    """Return the record of a new shard: one replica in sync, and a place for each of the other brokers.

    The identities of the others are not known yet. They are drawn, and the leader replaces them by those of the disks.
    """
    places = {draw(): broker for broker in others if broker != leader.broker}
    return ShardRecord(
        epoch=epoch,
        leader=leader.model_copy(update={"boot": 0}),
        in_sync=(leader.replica,),
        replicas={leader.replica: leader.broker, **places},
        min_in_sync=1,
    )


def minimum_of(brokers: int) -> int:
    """Return how many of the replicas of so many brokers have to be in sync: a majority, where their number is odd.

    During a move there is one broker more, and the loss of as many has to be survived as before.
    """
    return -(-brokers // 2) if brokers > 2 else brokers


def with_majority(record: ShardRecord) -> ShardRecord | None:
    """Return the record that asks for a majority in sync; None if it does already, or too few are."""
    majority = minimum_of(len(set(record.replicas.values())))
    if record.min_in_sync >= majority or len(record.in_sync) < majority:
        return None
    return record.model_copy(update={"min_in_sync": majority})
