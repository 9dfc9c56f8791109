"""Whether a replica whose disk has corrupted its log begins anew with a copy of the leader's: a pure decision.

The leader has everything that is committed, so nothing is lost by that as long as its disk lasts. Without a leader on
another broker the corrupt log may have messages that no other one has, so it stays as it is, and an operator decides.
"""

from collections.abc import Callable

from penstock.cluster.record import BrokerName, ReplicaId, ShardRecord

__all__ = ["begins_anew"]


def begins_anew(
    record: ShardRecord | None, replica: ReplicaId | None, me: BrokerName, is_connected: Callable[[BrokerName], bool]
) -> bool:
    """Return whether another broker leads the shard and can be reached.

    `replica` is the corrupt one's identity; None where it cannot be read.
    """
    if record is None:
        return False
    leader = BrokerName(record.leader.broker)
    return leader != me and record.leader.replica != replica and is_connected(leader)
