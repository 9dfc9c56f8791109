"""Tells the broker how far a query has come, as the stored offsets of a group, so that its lag is a metric there.

Only told, never read: where a query goes on is what its checkpoint says.
"""

from penstock.client.sync import connect
from penstock.spark.options import ReadOptions
from penstock.spark.ranges import Offsets

__all__ = ["store_progress"]


def store_progress(options: ReadOptions, offsets: Offsets) -> None:
    """The group is done with everything before these offsets."""
    with connect(options.uri, native=False) as connection:
        stream = connection.stream(options.stream)
        for partition, offset in offsets.items():
            if offset > 0:
                stream.store(options.group, offset - 1, partition)
