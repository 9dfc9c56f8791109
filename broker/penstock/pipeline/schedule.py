"""Runs a triggered pipeline at the times of a cron line, for machines without a scheduler.

Times are UTC. A time that comes during a run is skipped. A run that fails is reported, and the next one still comes.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from cronsim import CronSim, CronSimError

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.summary import Note

__all__ = ["checked_schedule", "next_time", "run_on_schedule"]


def checked_schedule(line: str) -> str:
    """Return the line: five fields, as in cron and Kubernetes. Raises PipelineError."""
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
    """Run at each time of the schedule. `wait` takes seconds and returns whether it was told to stop meanwhile."""
    while True:
        moment, at = now(), next_time(line, now())
        note(f"next run at {at:%Y-%m-%d %H:%M} UTC")
        if wait((at - moment).total_seconds()):
            return
        try:
            run()
        except PipelineError as error:
            note(f"failed: {error}")
