"""The first record of a shard, and how many of its replicas have to be in sync."""

from itertools import count, pairwise

from penstock.cluster.record import BrokerName, Leader, ShardRecord
from penstock.cluster.seats import draw_epoch, first_record, minimum_of, with_majority

ONE, TWO, THREE = (f"{number:032x}" for number in range(1, 4))


def test_a_new_shard_has_one_replica_in_sync_and_a_place_for_each_other_broker() -> None:
    drawn = (f"{number:032x}" for number in count(100))
    names = [BrokerName(name) for name in ("a", "b", "c")]

    record = first_record(Leader(broker="a", replica=ONE, boot=7), names, lambda: next(drawn), epoch=70)

    assert (record.epoch, record.in_sync, record.min_in_sync) == (70, (ONE,), 1)
    assert record.leader == Leader(broker="a", replica=ONE, boot=0), "no process leads yet"
    assert sorted(record.replicas.values()) == ["a", "b", "c"]
    assert record.replicas[ONE] == "a"


def test_epochs_of_two_records_for_one_shard_are_far_from_each_other() -> None:
    """Both began with epoch 1, and replicas took the records of one for those of the other."""
    first = sorted(draw_epoch() for _ in range(20))

    assert all(after - before >= 2**20 for before, after in pairwise(first))
    assert first[-1] < 2**63


def in_sync(*replicas: str, min_in_sync: int = 1) -> ShardRecord:
    return ShardRecord(
        epoch=3,
        leader=Leader(broker="a", replica=ONE, boot=7),
        in_sync=replicas,
        replicas={ONE: "a", TWO: "b", THREE: "c"},
        min_in_sync=min_in_sync,
    )


def test_a_majority_has_to_be_in_sync_once_so_many_are() -> None:
    assert with_majority(in_sync(ONE)) is None
    assert with_majority(in_sync(ONE, TWO)) == in_sync(ONE, TWO, min_in_sync=2)
    assert with_majority(in_sync(ONE, TWO, THREE)) == in_sync(ONE, TWO, THREE, min_in_sync=2)
    assert with_majority(in_sync(ONE, TWO, THREE, min_in_sync=2)) is None


def test_the_only_replica_of_a_shard_is_its_majority() -> None:
    alone = in_sync(ONE).model_copy(update={"replicas": {ONE: "a"}})

    assert with_majority(alone) is None


def test_a_broker_more_than_an_odd_number_raises_no_minimum() -> None:
    assert [minimum_of(count) for count in range(1, 7)] == [1, 2, 2, 2, 3, 3]
