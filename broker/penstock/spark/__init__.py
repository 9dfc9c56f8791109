"""Spark data source: `spark.read|readStream|write|writeStream.format("penstock")`.

It runs outside the broker and reaches it over Arrow Flight only. Only `source` imports PySpark.
"""

from penstock.spark.errors import DataLossError, OptionError, SchemaError, SparkConnectorError

__all__ = ["DataLossError", "OptionError", "SchemaError", "SparkConnectorError"]
