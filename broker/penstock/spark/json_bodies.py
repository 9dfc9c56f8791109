"""The decoder for JSON bodies: the native module's where it is installed, else that in Python.

Both have the same rows. An empty body is a tombstone, which is null and no bad record.
"""

import logging
from functools import cache

import pyarrow as pa

from penstock.spark.bodies import DecodeBodies
from penstock.spark.json_plain import plain_decoder

__all__ = ["json_decoder"]

_log = logging.getLogger("penstock")


def json_decoder(kind: pa.StructType) -> DecodeBodies:
    """Return the decoder for a struct of the bodies' fields."""
    if not is_native():
        return plain_decoder(kind)
    from penstock.spark.json_native import native_decoder

    return native_decoder(kind)


@cache
def is_native() -> bool:
    """Return whether the native module is there; log once per process that it is not."""
    try:
        import penstock.spark.json_native  # noqa: F401
    except ImportError:
        _log.warning(
            "the native module of penstock is not installed here, so JSON bodies are decoded in Python, many times "
            "slower; install the package penstock instead of penstock-client"
        )
        return False
    return True
