"""A driver as a process of its own, to be killed: copies a stream, or moves a queue, into a stream in small batches
until it is at the end of what there is. Arguments: the broker's URI, what the source is, its name, sink, checkpoint.
The source may be `shuffled`: a stream, by a query whose tasks have other rows each time, which therefore stages
them."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import rand

OF_A_STREAM = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "300"}
OPTIONS = {
    "stream": OF_A_STREAM,
    "shuffled": OF_A_STREAM,
    "queue": {"owner": "copier", "maxOffsetsPerTrigger": "900"},
}


def main(uri: str, kind: str, source: str, sink: str, checkpoint: str) -> None:
    # A task may fail three times: a worker that is killed must not end the query.
    spark = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    options = {"queue" if kind == "queue" else "stream": source, **OPTIONS[kind], "minPartitions": "2"}
    rows = spark.readStream.format("penstock").options(uri=uri, **options).load().select("key", "body")
    is_shuffled = kind == "shuffled"
    if is_shuffled:
        rows = rows.withColumn("chance", rand()).repartition(3, "chance").select("key", "body")
    query = (
        rows.writeStream.format("penstock")
        .options(uri=uri, stream=sink, checkpointLocation=checkpoint, staged=is_shuffled)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
