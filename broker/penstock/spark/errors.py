"""Errors of the connector; each message names the thing, the rule and the remedy.

Spark shows these messages to the user who started the query, so they must make sense without a traceback.
"""

__all__ = [
    "DataLossError",
    "NotFoundError",
    "OptionError",
    "RefusedError",
    "SchemaError",
    "SparkConnectorError",
    "UnavailableError",
]


class SparkConnectorError(Exception):
    """Base of all errors that this package raises."""


class OptionError(SparkConnectorError):
    """An option that is unknown, missing or invalid."""


class SchemaError(SparkConnectorError):
    """Columns that are missing or have another type."""


class DataLossError(SparkConnectorError):
    """Requested offsets that are no longer in the stream."""


class RefusedError(SparkConnectorError):
    """A call that the broker refused or could not carry out."""


class NotFoundError(RefusedError):
    """A stream, exchange or virtual host that does not exist."""


class UnavailableError(SparkConnectorError):
    """A broker that could not be reached, or did not answer, for as long as `retrySeconds` allows."""
