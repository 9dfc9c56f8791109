"""A corrupt replica begins anew where another broker leads, and stays as it is where it may be the last one."""

import pytest

from penstock.cluster.record import BrokerName, Leader, ShardRecord
from penstock.cluster.repairing import begins_anew

ME, OTHER = BrokerName("mq-0"), BrokerName("mq-1")
MINE, THEIRS = "a" * 32, "b" * 32


def led_by(broker: BrokerName, replica: str) -> ShardRecord:
    return ShardRecord(
        epoch=5,
        leader=Leader(broker=broker, replica=replica, boot=1),
        in_sync=(replica,),
        replicas={MINE: ME, THEIRS: OTHER},
        min_in_sync=1,
    )


@pytest.mark.parametrize("replica", [MINE, None])
def test_another_broker_that_leads_has_all_that_is_committed(replica: str | None) -> None:
    assert begins_anew(led_by(OTHER, THEIRS), replica, ME, lambda broker: broker == OTHER)


@pytest.mark.parametrize(
    ("record", "is_connected"),
    [
        (None, True),
        (led_by(ME, MINE), True),
        (led_by(OTHER, THEIRS), False),
    ],
)
def test_the_last_replica_stays_as_it_is(record: ShardRecord | None, is_connected: bool) -> None:
    assert not begins_anew(record, MINE, ME, lambda _: is_connected)


def test_a_disk_that_was_moved_to_another_broker_does_not_count_as_a_copy() -> None:
    assert not begins_anew(led_by(OTHER, MINE), MINE, ME, lambda _: True)
