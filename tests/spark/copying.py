"""A driver as a process of its own, to be killed: copies a stream, or moves a queue, into a stream in small batches.

It ends when everything is read. Arguments: the broker's URI, the kind of the source, its name, sink, checkpoint, and
the least number of tasks. The source may be `shuffled`: a stream, by a query whose tasks have other rows each time,
which therefore stages them. It may be `cluster`: a stream, on two workers of their own, where slow tasks are run twice.
"""

import os
import sys

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.functions import rand

STARTS_MAX = 50
# Spark gives a Python process ten seconds to respond, which is too short on a busy machine; and a query whose own
# Python process dies, rather than a task's, ends.
CAUSES = ("failed to connect back", "exited unexpectedly (crashed)")
OF_A_STREAM = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "300"}
OPTIONS = {
    "stream": OF_A_STREAM,
    "shuffled": OF_A_STREAM,
    "cluster": OF_A_STREAM,
    "queue": {"owner": "copier", "maxOffsetsPerTrigger": "900"},
}
CLUSTER = {
    "spark.executor.memory": "512m",
    "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "1ms",
}


def main(uri: str, kind: str, source: str, sink: str, checkpoint: str, tasks_min: str = "2") -> None:
    # A task may fail three times: a worker that is killed must not end the query.
    builder = SparkSession.builder.master("local-cluster[2,1,512]" if kind == "cluster" else "local[2,4]")
    for name, value in (CLUSTER if kind == "cluster" else {}).items():
        builder = builder.config(name, value)
    spark = (
        builder.config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    options = {"queue" if kind == "queue" else "stream": source, **OPTIONS[kind], "minPartitions": tasks_min}
    rows = spark.readStream.format("penstock").options(uri=uri, **options).load().select("key", "body")
    is_shuffled = kind == "shuffled"
    if is_shuffled:
        rows = rows.withColumn("chance", rand()).repartition(3, "chance").select("key", "body")
    writer = (
        rows.writeStream.format("penstock")
        .options(uri=uri, stream=sink, checkpointLocation=checkpoint, staged=is_shuffled)
        .trigger(availableNow=True)
    )
    for _ in range(STARTS_MAX):
        try:
            writer.start().awaitTermination()
            return
        except StreamingQueryException as error:
            # The next one goes on from the Spark checkpoint.
            if not any(cause in str(error) for cause in CAUSES):
                raise
    raise SystemExit(f"after {STARTS_MAX} starts no Python process was fast enough")


if __name__ == "__main__":
    main(*sys.argv[1:])
