"""Runs of a triggered pipeline at the times of a cron line, for machines without a scheduler of their own.

Times are UTC. A time that comes while a run is not over is passed by; a run that fails is told and the next one comes
all the same.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from cronsim import CronSim, CronSimError

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.summary import Note

__all__ = ["checked_schedule", "next_time", "run_on_schedule"]


def checked_schedule(line: str) -> str:
    """Raises PipelineError. Five fields, as cron and Kubernetes have them."""
    try:
        CronSim(line, datetime(2026, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise PipelineError(
            f"schedule is '{line}', not a line of cron ({error}); '15 * * * *' is a quarter past every hour"
        ) from error
    return line


def next_time(line: str, now: datetime) -> datetime:
    return next(CronSim(line, now))


def run_on_schedule(
    line: str, run: Callable[[], None], now: Callable[[], datetime], wait: Callable[[float], bool], note: Note
) -> None:
    """`wait` takes seconds and says whether it was told to stop meanwhile."""
    while True:
        moment, at = now(), next_time(line, now())
        note(f"next run at {at:%Y-%m-%d %H:%M} UTC")
        if wait((at - moment).total_seconds()):
            return
        try:
            run()
        except PipelineError as error:
            note(f"failed: {error}")
