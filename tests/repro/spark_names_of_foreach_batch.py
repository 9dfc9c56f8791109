"""A query writes with `foreachBatch`. The producer names of its batches must not grow with the batches.

A virtual host has 65,536 names.
"""

from rig import Broker, penstock, run
from sparkrig import bodies, session

BATCHES = 15


def names_left(spark, folder, broker, connection, staged):
    """Return how many rows are stored, and how many names are left."""
    connection.declare_stream(f"sink-{staged}")

    def write(rows, _):
        sink = rows.write.format("penstock").mode("append")
        sink.options(uri=broker.uri, stream=f"sink-{staged}", staged=staged).save()

    before = len(connection.admin.list_producers())
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "10", "minPartitions": "2"}
    rows = spark.readStream.format("penstock").options(uri=broker.uri, stream="source", **limits).load()
    rows = rows.select("key", "body").writeStream.foreachBatch(write).trigger(availableNow=True)
    query = rows.option("checkpointLocation", str(folder / f"checkpoint-{staged}")).start()
    if not query.awaitTermination(100):
        raise RuntimeError("not over after 100 s")
    return len(bodies(connection, f"sink-{staged}")), len(connection.admin.list_producers()) - before


def check():
    with Broker() as broker, session() as (spark, folder):
        broker.start()
        with penstock.connect(broker.uri, native=False) as connection:
            connection.declare_stream("source")
            connection.stream("source").publish_many([b"%d" % number for number in range(BATCHES * 10)])
            seen = {staged: names_left(spark, folder, broker, connection, staged) for staged in ("false", "true")}
    told = "; ".join(
        f"staged={staged}: {BATCHES} batches of 2 tasks stored {there} rows and left {more} names"
        for staged, (there, more) in seen.items()
    )
    return any(more > 4 for _, more in seen.values()), told


run(check)
