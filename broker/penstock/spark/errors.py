"""What the connector refuses or cannot do, each a sentence that names the thing, the rule and the way out.

Spark shows these texts to whoever started the query, so they must make sense without a traceback.
"""

__all__ = ["DataLossError", "OptionError", "SchemaError", "SparkConnectorError"]


class SparkConnectorError(Exception):
    """Anything that this room raises by itself."""


class OptionError(SparkConnectorError):
    """An option that is not known, missing or not what it should be."""


class SchemaError(SparkConnectorError):
    """Columns that are not there or have another type."""


class DataLossError(SparkConnectorError):
    """Offsets that were asked for are no longer in the stream."""
