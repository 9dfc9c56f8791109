"""Errors of the connector; each message names the thing, the rule and the remedy.

Spark shows these messages to the user who started the query, so they must make sense without a traceback.
"""

__all__ = ["DataLossError", "OptionError", "SchemaError", "SparkConnectorError"]


class SparkConnectorError(Exception):
    """Base of all errors that this package raises."""


class OptionError(SparkConnectorError):
    """An option that is unknown, missing or invalid."""


class SchemaError(SparkConnectorError):
    """Columns that are missing or have another type."""


class DataLossError(SparkConnectorError):
    """Requested offsets that are no longer in the stream."""
