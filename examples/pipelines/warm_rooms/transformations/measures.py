"""What is read and where it goes: a stream of measures, a table of rooms, a stream and a folder of warm rooms.

Between them is warm.sql. The broker's URI is PENSTOCK_URI.
"""

from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
PROJECT = Path(__file__).resolve().parents[1]


@dp.temporary_view
def measures() -> DataFrame:
    source = spark.readStream.format("penstock").option("stream", "measures").option("startingOffsets", "earliest")
    return source.options(parsed="json", parsedSchema="room STRING, degrees DOUBLE, at TIMESTAMP").load()


@dp.temporary_view
def rooms() -> DataFrame:
    return spark.read.format("csv").option("header", "true").load(str(PROJECT.parent / "rooms.csv"))


dp.create_sink("warm_stream", "penstock", {"stream": "warm"})
dp.create_sink("warm_folder", "parquet", {"path": str(PROJECT / "target" / "warm")})


@dp.append_flow(target="warm_stream")
def into_stream() -> DataFrame:
    return spark.sql("SELECT room AS key, to_json(struct(*)) AS body FROM STREAM warm")


@dp.append_flow(target="warm_folder")
def into_folder() -> DataFrame:
    return spark.readStream.table("warm")
