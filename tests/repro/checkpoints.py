"""Queries that copy streams with a Spark checkpoint, and what one does to a checkpoint by hand."""

from collections import Counter
from pathlib import Path

__all__ = ["compared", "copying", "forget_batches"]


def copying(spark, uri, source, sink, checkpoint, sink_options):
    """Return the writer of a query that copies a stream to its end."""
    rows = (
        spark.readStream.format("penstock").options(uri=uri, stream=source, startingOffsets="earliest").load()
    ).select("key", "body")
    return (
        rows.writeStream.format("penstock")
        .options(uri=uri, stream=sink, checkpointLocation=str(checkpoint), **sink_options)
        .trigger(availableNow=True)
    )


def compared(wanted, got):
    """Return how many are lost, and how many are there too often."""
    wanted, got = Counter(wanted), Counter(got)
    return (wanted - got).total(), (got - wanted).total()


def forget_batches(checkpoint, *batches):
    """Change a checkpoint as if these batches had not been begun."""
    for kind in ("offsets", "commits"):
        for batch in batches:
            for name in (str(batch), f".{batch}.crc"):
                (Path(checkpoint) / kind / name).unlink(missing_ok=True)
