"""How many tasks a batch has: by the sizes of its partitions, and as many as the options ask for."""

from dataclasses import replace

from penstock.spark.shares import SIZE_SPLITS_MAX, SPLIT_BYTES, SPLIT_ROWS, Limits, parts_of
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
