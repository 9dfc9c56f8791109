"""The Spark process of the rows about Spark: a session on two threads that reads a stream and another source.

Arguments: measurement, the broker's URI, the stream, a folder to write to. Prints its figures as JSON.
"""

import json
import sys
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from bench.spark_delays import delays, idle, overhead
from bench.spark_tables import QUESTIONS, asked

WORK = {"overhead": overhead, "delays": delays, "idle": idle}


def main(what: str, uri: str, stream: str, folder: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for name, value in (("host", "127.0.0.1"), ("bindAddress", "127.0.0.1"), ("memory", "1g")):
        builder = builder.config(f"spark.driver.{name}", value)
    spark = builder.config("spark.local.dir", folder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    work = WORK.get(what) or partial(asked, question=QUESTIONS[what])
    try:
        found = work(spark, uri=uri, stream=stream, folder=Path(folder))
    finally:
        spark.stop()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
