"""Reports a query's progress to the broker as a group's stored offsets, so that its lag is a metric there.

The offsets are never read back: the Spark checkpoint says where a query goes on.
"""

from penstock.client.sync import connect
from penstock.spark.options import ReadOptions
from penstock.spark.ranges import Offsets

__all__ = ["store_progress"]


def store_progress(options: ReadOptions, offsets: Offsets) -> None:
    """Store these offsets: the group has processed everything before them."""
    with connect(options.uri, native=False) as connection:
        stream = connection.stream(options.stream)
        for partition, offset in offsets.items():
            if offset > 0:
                stream.store(options.group, offset - 1, partition)
