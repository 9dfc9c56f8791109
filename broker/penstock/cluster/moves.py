"""How far replicas are on their way to the brokers that are to have them.

The metadata says where they are to be, and the record of a shard where they are. The leader brings the record there by
itself, one broker at a time; only the lead of a broker that is to have no replica is left to that broker.
"""

from collections.abc import Collection

from penstock.cluster.record import ShardRecord


def is_settled(record: ShardRecord, placed: Collection[str]) -> bool:
    """Return whether the replicas are on the brokers that are to have them, and in sync."""
    return len(record.in_sync) == len(record.replicas) and set(record.replicas.values()) == set(placed)


def is_last_to_leave(record: ShardRecord, placed: Collection[str], broker: str) -> bool:
    """Return whether a broker has the only replica that is to go, and all others are in sync."""
    return broker not in placed and bool(placed) and is_settled(record, {*placed, broker})
