"""Whether a replica whose disk has corrupted its log begins anew with a copy of the leader's: pure decisions.

A broker that leads has everything that is committed, so nothing is lost by that as long as its disk lasts. The record
alone does not say that one leads: that broker may have been killed since, and its own log may be corrupt. Without a
leader on another broker the corrupt log may have messages that no other one has, so it stays as it is, and an operator
decides.
"""

from collections.abc import Iterable

from penstock.cluster.record import BrokerName, ShardRecord
from penstock.cluster.shard_calls import ShardReport
from penstock.native import ReplicaIdentity

__all__ = ["leader_to_ask", "leads_by"]


def leader_to_ask(record: ShardRecord | None, corrupt: ReplicaIdentity | None, me: BrokerName) -> BrokerName | None:
    """Return the other broker that leads the shard by its record, if that is not older than the corrupt replica's log.

    `corrupt` is None where it cannot be read. One that has promised a later epoch may have messages of that.
    """
    if record is None or record.leader.broker == me:
        return None
    if corrupt is not None and (record.leader.replica == corrupt.replica or record.epoch < corrupt.promised):
        return None
    return BrokerName(record.leader.broker)


def leads_by(record: ShardRecord, reports: Iterable[ShardReport]) -> bool:
    """Return whether the broker of the record says that it leads now, in the epoch of the record."""
    return any(report.epoch == record.epoch for report in reports)
