"""A query dies in a batch and is started again with another `minPartitions`, as one does when it is too slow.

The batch that comes again must be cut as it was: no row twice, none lost.
"""

from pathlib import Path

from rig import Broker, penstock, run
from sparkrig import bodies, compared, copying, run_to_the_end, session, verdict

ROWS = 600


def check():
    with Broker() as broker, session() as (spark, folder), penstock.connect(broker_uri(broker), native=False) as there:
        return outcome(broker, spark, folder, there)


def broker_uri(broker):
    broker.start()
    return broker.uri


def outcome(broker, spark, folder, connection):
    seen = {}
    connection.declare_stream("source")
    rows = [b"%d" % number for number in range(ROWS)]
    connection.stream("source").publish_many(rows)
    for before, after, dying in ((2, 5, 1), (5, 2, 2)):
        sink = f"sink-{before}-{after}"
        connection.declare_stream(sink)
        has_failed = str(folder / f"failed-{sink}")

        def failing_once(batches, has_failed=has_failed, dying=dying):
            """Let one task die when the others are done."""
            from time import sleep

            from pyspark import TaskContext

            yield from batches
            if TaskContext.get().partitionId() == dying and not Path(has_failed).exists():
                sleep(3)
                Path(has_failed).touch()
                raise OSError("this task dies at its end")

        def change(frame, function=failing_once):
            return frame.mapInArrow(function, "key BINARY, body BINARY")

        def copied(tasks, sink=sink, change=change):
            options = {"change": change, "minPartitions": str(tasks)}
            return run_to_the_end(copying(spark, broker.uri, "source", sink, folder / sink, **options), seconds=60)

        died = copied(before)
        if "dies at its end" not in died:
            raise RuntimeError(died or "the first run did not die")
        stored = len(bodies(connection, sink))
        failed = copied(after)
        tried = f"{before} tasks, then {after}, {stored} rows stored when it died"
        seen[tried] = (*compared(rows, bodies(connection, sink)), failed)
    return verdict(seen, ROWS)


run(check)
