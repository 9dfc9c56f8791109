"""A corrupt replica begins anew where another broker leads, and stays as it is where it may be the last one."""

import pytest

from penstock.cluster.record import BrokerName, Leader, ShardRecord
from penstock.cluster.repairing import leader_to_ask, leads_by
from penstock.cluster.shard_calls import ShardReport
from penstock.native import ReplicaIdentity

ME, OTHER = BrokerName("mq-0"), BrokerName("mq-1")
MINE, THEIRS = "a" * 32, "b" * 32
EPOCH = 5


def led_by(broker: BrokerName, replica: str) -> ShardRecord:
    return ShardRecord(
        epoch=EPOCH,
        leader=Leader(broker=broker, replica=replica, boot=1),
        in_sync=(replica,),
        replicas={MINE: ME, THEIRS: OTHER},
        min_in_sync=1,
    )


def mine(promised: int = EPOCH) -> ReplicaIdentity:
    return ReplicaIdentity(replica=MINE, promised=promised)


@pytest.mark.parametrize("corrupt", [mine(), mine(EPOCH - 1), None])
def test_another_broker_that_leads_has_all_that_is_committed(corrupt: ReplicaIdentity | None) -> None:
    assert leader_to_ask(led_by(OTHER, THEIRS), corrupt, ME) == OTHER


@pytest.mark.parametrize("record", [None, led_by(ME, MINE), led_by(ME, THEIRS)])
def test_the_last_replica_stays_as_it_is(record: ShardRecord | None) -> None:
    assert leader_to_ask(record, mine(), ME) is None


def test_a_disk_that_was_moved_to_another_broker_does_not_count_as_a_copy() -> None:
    assert leader_to_ask(led_by(OTHER, MINE), mine(), ME) is None


def test_a_coordinator_that_went_back_does_not_know_who_has_all_that_is_committed() -> None:
    """The leader of its record may have left the in-sync set before the corrupt replica confirmed its last messages."""
    assert leader_to_ask(led_by(OTHER, THEIRS), mine(promised=EPOCH + 1), ME) is None


def test_a_broker_leads_if_it_says_so_in_the_epoch_of_the_record() -> None:
    record = led_by(OTHER, THEIRS)

    assert leads_by(record, [ShardReport("shop.0.1", EPOCH, 900, {})])
    assert not leads_by(record, [ShardReport("shop.0.1", EPOCH - 1, 900, {})])
    assert not leads_by(record, [])
