"""The broker restarts within a few seconds while a query has just finished a batch.

With `group` set, which only tells how far the query is, it must live through that as it does without.
"""

import threading
import time

from rig import Broker, penstock, run
from sparkrig import reason, session


def outcome(spark, folder, broker, group):
    with penstock.connect(broker.uri, native=False) as connection:
        connection.declare_stream(f"events{group}")
        connection.stream(f"events{group}").publish_many([b"1", b"2"])
    batches = []

    def take(rows, _):
        batches.append(rows.count())
        if len(batches) == 1:
            broker.kill()

            def later():
                time.sleep(3)
                broker.start()

            threading.Thread(target=later).start()

    options = {"startingOffsets": "earliest", **({"group": "lake"} if group else {})}
    rows = spark.readStream.format("penstock").options(uri=broker.uri, stream=f"events{group}", **options).load()
    writer = rows.select("body").writeStream.foreachBatch(take)
    query = writer.option("checkpointLocation", str(folder / f"c{group}")).start()
    until = time.monotonic() + 60
    while time.monotonic() < until and not batches:
        time.sleep(0.2)
    time.sleep(9)
    error = query.exception()
    if error is None:
        with penstock.connect(broker.uri, native=False) as connection:
            connection.stream(f"events{group}").publish(b"3")
        until = time.monotonic() + 20
        while time.monotonic() < until and len(batches) < 2 and query.isActive:
            time.sleep(0.2)
        error = query.exception()
    is_alive = query.isActive and len(batches) == 2
    query.stop()
    if is_alive:
        return True, "goes on"
    return False, f"is dead: {reason(error)}" if error else f"stands after batches {batches}"


def check():
    with Broker() as broker, session() as (spark, folder):
        broker.start()
        without, told_without = outcome(spark, folder, broker, "")
        with_group, told_with = outcome(spark, folder, broker, "-group")
    if not without:
        raise RuntimeError(f"the query without a group {told_without}")
    return (
        not with_group,
        f"broker away for 3 s after a batch: the query without group {told_without}, with group {told_with}",
    )


run(check)
