"""A driver as a process of its own, to be killed: copies a stream, or moves a queue, into a stream in small batches
until it is at the end of what there is. Arguments: the broker's URI, what the source is, its name, sink, checkpoint."""

import sys

from pyspark.sql import SparkSession

OPTIONS = {
    "stream": {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "300"},
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
    options = {kind: source, **OPTIONS[kind], "minPartitions": "2"}
    query = (
        spark.readStream.format("penstock")
        .options(uri=uri, **options)
        .load()
        .select("key", "body")
        .writeStream.format("penstock")
        .options(uri=uri, stream=sink, checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
