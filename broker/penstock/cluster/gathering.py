"""Which broker is to lead all shards of a virtual host.

A message may go to queues of several shards, and exchanges and routes belong to the first one, so one broker leads all
of them. All brokers choose alike, because they decide from the records of the shards alone. Nothing here is about
safety: a shard that is led by another broker takes no messages until it is handed over.
"""

import zlib
from collections import Counter
from collections.abc import Collection, Sequence

from penstock.cluster.record import BrokerName, ShardRecord


def in_sync_in_all(records: Sequence[ShardRecord]) -> frozenset[BrokerName]:
    """Return the brokers that have a replica in sync of each shard."""
    brokers = ({BrokerName(record.replicas[replica]) for replica in record.in_sync} for record in records)
    return frozenset(set.intersection(*brokers))


def leader_of_all(records: Sequence[ShardRecord], avoided: Collection[str] = ()) -> BrokerName | None:
    """Return the broker that is to lead all shards; None where no broker has a replica in sync of each.

    `records` are in the order of the shards. The leader of the first one is preferred, then the one that leads most of
    them: so the choice stays the same while shards are handed over to it. Brokers that are avoided are chosen if no
    other one can lead.
    """
    able = in_sync_in_all(records)
    wanted = able.difference(avoided) or able
    leaders = [BrokerName(record.leader.broker) for record in records]
    counts = Counter(leaders)

    def rank(broker: BrokerName) -> tuple[bool, int, int, str]:
        drawn = zlib.crc32(f"{records[0].leader.replica} {broker}".encode())
        return broker != leaders[0], -counts[broker], drawn, broker

    return min(wanted, key=rank, default=None)
