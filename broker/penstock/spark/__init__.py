"""Spark's way in: `spark.read|readStream|write|writeStream.format("penstock")`.

Outside the broker, which it meets over Arrow Flight only. Nothing of PySpark is imported before `source` is.
"""

from penstock.spark.errors import DataLossError, OptionError, SchemaError, SparkConnectorError

__all__ = ["DataLossError", "OptionError", "SchemaError", "SparkConnectorError"]
