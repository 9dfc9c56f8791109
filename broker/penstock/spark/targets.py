"""Checks in the driver, before a task starts: whether streams to publish to exist.

A user who may write and not look is not refused here: the broker decides when the rows come.
"""

from penstock.spark.errors import NotFoundError, RefusedError
from penstock.spark.options import ReadOptions, WriteOptions
from penstock.spark.wire import Wire

__all__ = ["check_dead_letters", "check_target"]


def check_target(options: WriteOptions) -> None:
    """Raise NotFoundError when the stream does not exist."""
    if options.stream:
        with Wire(options.uri, options.retry_seconds) as wire:
            check_stream(wire, options.stream)


def check_dead_letters(options: ReadOptions) -> None:
    """Raise NotFoundError when the dead-letter stream does not exist."""
    if options.decoding.dead_letter_stream:
        with Wire(options.uri, options.retry_seconds) as wire:
            check_stream(wire, options.decoding.dead_letter_stream)


def check_stream(wire: Wire, stream: str) -> None:
    """Raise NotFoundError when there is no such stream."""
    try:
        wire.describe((stream,))
    except NotFoundError:
        raise
    except RefusedError:
        return
