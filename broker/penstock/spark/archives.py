"""Losses that no count of rows shows: of an archive that the broker cannot read, and of a stream that lacks partitions.

The rows that only an archive has are not among a partition's runs then, so its first row would be the log's. Whether
such a read fails or goes on with a warning is up to `failOnDataLoss`.
"""

import logging
from collections.abc import Iterable, Mapping

from penstock.spark.described import Partition
from penstock.spark.errors import DataLossError
from penstock.spark.places import Place
from penstock.spark.ranges import messages, missing_archive

__all__ = ["check_archives", "check_complete", "note_lost"]

_log = logging.getLogger("penstock")


def check_archives(places: Iterable[Place], there: Mapping[str, Partition], fail_on_data_loss: bool) -> None:
    """Raise DataLossError when a place is in an archive that cannot be read, or log that its rows are passed over."""
    for name, partition in there.items():
        if partition.archive_error is None or not any(place.is_archived(partition) for place in places):
            continue
        if fail_on_data_loss:
            raise DataLossError(missing_archive(partition))
        rows = partition.rows_before(partition.first)
        _log.warning("up to %s of partition '%s' are passed over: %s", messages(rows), name, partition.archive_error)


def check_complete(there: Mapping[str, Partition], fail_on_data_loss: bool) -> None:
    """Raise DataLossError when a stream has fewer partitions than it was declared with, or log that it is so."""
    lacking = {each.stream: each.missing_count for each in there.values() if each.missing_count}
    for stream, count in lacking.items():
        problem = f"stream '{stream}' lacks {count} of the partitions that it was declared with"
        if fail_on_data_loss:
            raise DataLossError(
                f"{problem}; declare it again with as many partitions, which makes the missing ones anew, or set "
                "failOnDataLoss=false to read the others"
            )
        _log.warning("%s, and the others are read without them", problem)


def note_lost(lost: Mapping[str, int]) -> None:
    """Log the rows of partitions that a read passes over because `failOnDataLoss` is false."""
    for name, rows in lost.items():
        _log.warning("%s of partition '%s' are missing and passed over", messages(rows), name)
