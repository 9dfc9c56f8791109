"""Power is lost and comes back: the broker leaves out 2^32 numbers of every stream.

A query with a rate limit must still reach the 100 rows behind the gap in seconds, and `minPartitions` must still spread
them.
"""

import json
import time
from itertools import pairwise

from rig import Broker, penstock, run
from sparkrig import bodies, copying, lose_power, session

SECONDS = 60


def check():
    with Broker() as broker, session() as (spark, folder):
        broker.start()
        return outcome(broker, spark, folder)


def outcome(broker, spark, folder):
    with penstock.connect(broker.uri, native=False) as connection:
        connection.declare_stream("source")
        connection.declare_stream("sink")
        connection.stream("source").publish_many([b"before-%d" % number for number in range(100)])
    lose_power(broker)
    broker.start()
    with penstock.connect(broker.uri, native=False) as connection:
        source = connection.stream("source")
        source.publish_many([b"after-%d" % number for number in range(100)])
        offsets = [message.offset for message in source.read("first", until="next")]
        gap = max(high - low for low, high in pairwise(offsets))

        # The tasks of a micro-batch of a query that had read the first 100 rows.
        place = {"startingOffsets": json.dumps({"source": offsets[99] + 1}), "minPartitions": "4"}
        read = spark.read.format("penstock").options(uri=broker.uri, stream="source", **place).load()
        shares = read.rdd.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect()

        begun = time.monotonic()
        query = copying(spark, broker.uri, "source", "sink", folder / "checkpoint", maxOffsetsPerTrigger="50000")
        query = query.start()
        is_over = query.awaitTermination(SECONDS)
        seconds = time.monotonic() - begun
        progress = query.lastProgress
        batches = (progress["batchId"] + 1) if progress else 0
        there = len(bodies(connection, "sink"))
        query.stop()
    return not is_over or there < 200 or max(shares) > 60, (
        f"gap of {gap} numbers; after {seconds:.0f} s and {batches} micro-batches of 50,000 numbers the rate-limited "
        f"query had {there} of 200 rows and was {'over' if is_over else 'still at work'} (2^32 / 50,000 = 85,899 "
        f"batches a partition); the 100 rows behind the gap with minPartitions=4: {shares} a task"
    )


run(check)
