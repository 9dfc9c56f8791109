"""Which replicas may lead a shard in place of this broker's."""

from collections.abc import Callable

from penstock.cluster.record import BrokerName, ReplicaId, ShardRecord


def heirs(
    record: ShardRecord, me: BrokerName, is_connected: Callable[[BrokerName], bool]
) -> dict[ReplicaId, BrokerName]:
    """Return the replicas in sync of other brokers that are connected, with their brokers."""
    in_sync = {replica: BrokerName(record.replicas[replica]) for replica in record.in_sync}
    return {replica: broker for replica, broker in in_sync.items() if broker != me and is_connected(broker)}
