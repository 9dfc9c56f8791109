"""How many tasks a batch has: by the sizes of its partitions, and as many as the options ask for."""

from dataclasses import replace

from penstock.spark.described import Partition
from penstock.spark.shares import SIZE_SPLITS_MAX, SPLIT_BYTES, SPLIT_ROWS, SPLITS_MAX, Limits, parts_of
from support.partitions import Messages


def test_large_partitions_are_split_by_their_size_and_by_their_rows() -> None:
    large = replace(
        Messages().described(), bytes=10 * SPLIT_BYTES, rows=100, runs=Messages().more(100).described().runs
    )

    assert parts_of({"events": 100}, {"events": large}, Limits()) == {"events": 10}
    assert parts_of({"events": 50}, {"events": large}, Limits()) == {"events": 5}
    many = {"events": 3 * SPLIT_ROWS + 1}
    assert parts_of(many, {"events": replace(large, bytes=-1)}, Limits()) == {"events": 4}
    huge = replace(large, bytes=10**6 * SPLIT_BYTES, runs=Messages().more(10_000).described().runs)
    assert parts_of({"events": 10_000}, {"events": huge}, Limits()) == {"events": SIZE_SPLITS_MAX}


def uneven() -> tuple[dict[str, int], dict[str, Partition]]:
    """Return many small rows in a partition, and fewer large ones in another."""
    many = replace(Messages().described(), name="many", bytes=0)
    few = Messages(name="few").more(10_000).described()
    return {"many": 10**6, "few": 10_000}, {"many": many, "few": replace(few, bytes=10**6 * SPLIT_BYTES)}


def test_splits_by_size_are_fewer_where_there_is_no_room_beside_those_that_were_asked_for() -> None:
    rows, there = uneven()
    assert parts_of(rows, there, Limits())["few"] == SIZE_SPLITS_MAX

    parts = parts_of(rows, there, Limits(splits_min=SPLITS_MAX - 100))

    assert sum(parts.values()) == SPLITS_MAX
    assert (parts["many"], parts["few"]) == (3_957, 139)
    assert sum(parts_of(rows, there, Limits(splits_min=SPLITS_MAX)).values()) == SPLITS_MAX + 1


def test_tasks_of_so_many_rows_are_as_many_as_were_asked_for() -> None:
    rows, there = uneven()

    assert parts_of(rows, there, Limits(split_rows_max=200)) == {"many": 5_000, "few": 50}
