"""Checks in the driver, before a task starts: whether streams to publish to exist, and what a stage is for.

A user who may write and not look is not refused here: the broker decides when the rows come.
"""

from contextlib import suppress

from penstock.client.errors import PenstockError
from penstock.client.staging import StageInfo
from penstock.client.sync import connect
from penstock.spark.errors import NotFoundError, RefusedError
from penstock.spark.options import ReadOptions, WriteOptions
from penstock.spark.wire import Wire

__all__ = ["check_dead_letters", "check_target", "stage_conflict"]


def check_target(options: WriteOptions) -> None:
    """Raise NotFoundError when the stream does not exist, RefusedError when a named stage publishes elsewhere."""
    if options.stream:
        with Wire(options.uri, options.retry_seconds) as wire:
            check_stream(wire, options.stream)
    if options.staged and options.producer:
        # The user may not list stages, or the broker may be away for a moment.
        stages: list[StageInfo] = []
        with suppress(PenstockError), connect(options.uri, native=False) as connection:
            stages = connection.admin.list_stages()
        if any(stage.name == options.producer and not is_for(stage, options) for stage in stages):
            raise stage_conflict(options.producer)


def check_dead_letters(options: ReadOptions) -> None:
    """Raise NotFoundError when the dead-letter stream does not exist."""
    if options.decoding.dead_letter_stream:
        with Wire(options.uri, options.retry_seconds) as wire:
            check_stream(wire, options.decoding.dead_letter_stream)


def check_stream(wire: Wire, stream: str) -> None:
    """Raise NotFoundError when there is no such stream."""
    try:
        wire.describe(stream)
    except NotFoundError:
        raise
    except RefusedError:
        return


def is_for(stage: StageInfo, options: WriteOptions) -> bool:
    """Return whether the stage publishes to the target; a partitioned stream is an exchange."""
    if options.exchange is None:
        return options.stream in (stage.exchange, stage.routing_key)
    return (stage.exchange, stage.routing_key) == (options.exchange, options.routing_key)


def stage_conflict(stage: str) -> RefusedError:
    return RefusedError(
        f"stage '{stage}' publishes to another stream or exchange; set another 'producer' or use a new checkpoint, or "
        f"delete the stage with: penstock stream stages --delete {stage}"
    )
