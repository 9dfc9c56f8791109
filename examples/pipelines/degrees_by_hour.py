"""The transformation of degrees-by-hour.yaml: the mean of each room and hour, with measures up to ten minutes late."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import avg, col, count, window


def transform(spark: SparkSession, source: DataFrame) -> DataFrame:
    """Return the result; called once, when the pipeline starts. `source` is the stream."""
    measures = source.select("value.*").withWatermark("at", "10 minutes")
    hours = measures.groupBy("room", window("at", "1 hour").alias("hour"))
    means = hours.agg(avg("degrees").alias("degrees"), count("*").alias("measures"))
    return means.select("room", col("hour.start").alias("hour"), "degrees", "measures")
