"""Answers of the broker in JSON: one of another form is refused by a sentence, as neither a loss nor a missing stream.

Pure: no wire, no Spark.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.spark.errors import SparkConnectorError

__all__ = ["number", "of_known_form", "text"]


@contextmanager
def of_known_form(asked: str) -> Iterator[None]:
    """Turn the errors of reading an answer to this question into the connector's own."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise SparkConnectorError(
            f"the broker answered {asked} in a form that this release does not read; use releases of both that belong "
            "together"
        ) from None


def number(found: Any) -> int:
    """Return a whole number that is one; raise TypeError, also for true and false."""
    if type(found) is not int:
        raise TypeError(f"{found!r} is not a whole number")
    return found


def text(found: Any) -> str:
    if not isinstance(found, str):
        raise TypeError(f"{found!r} is not text")
    return found
