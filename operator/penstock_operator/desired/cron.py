"""Times of a schedule: five fields of cron in a time zone. All times that go in and out are UTC, on whole seconds.

The library decides what the fields mean, and does at changes of the clock what cron does: a time that is skipped comes
just after, and one that comes twice counts once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

# Windows in which the last due time is looked for: each has at most some hundreds of times, if the one before had none.
_WINDOWS: Final = tuple(timedelta(hours=hours) for hours in (1, 24, 24 * 32, 24 * 32 * 12, 24 * 32 * 12 * 40))


class ScheduleError(ValueError):
    """A schedule that cannot be; the text names the part and what to write."""


@dataclass(frozen=True, slots=True)
class Cron:
    """A schedule in a time zone."""

    expression: str
    zone: tzinfo = UTC

    @classmethod
    def parse(cls, expression: str, zone: str = "UTC") -> "Cron":
        """Return the schedule. Raises ScheduleError."""
        try:
            found = cls(expression, UTC if zone == "UTC" else ZoneInfo(zone))
        except (KeyError, ValueError, OSError) as error:
            raise ScheduleError(f"timeZone '{zone}' is not known; write one such as Europe/Oslo") from error
        if len(expression.split()) != 5:
            raise ScheduleError(f"schedule '{expression}' has not five fields; write minute, hour, day, month, weekday")
        try:
            first = found.next(datetime(2024, 1, 1, tzinfo=UTC))
        except (CronSimError, ValueError) as error:
            raise ScheduleError(f"schedule '{expression}': {str(error).lower()}; write it as cron does") from error
        if first is None:
            raise ScheduleError(f"schedule '{expression}' is never due; write one that is")
        return found

    def next(self, after: datetime) -> datetime | None:
        """Return the first time after another one."""
        return next(self._times(after, after), None)

    def latest(self, after: datetime, until: datetime) -> datetime | None:
        """Return the last time in a span; `until` belongs to it, `after` does not."""
        for window in _WINDOWS:
            begin = max(after, until - window)
            last = None
            for each in self._times(begin, after):
                if each > until:
                    break
                last = each
            if last is not None or begin == after:
                return last
        return None

    def _times(self, begin: datetime, after: datetime) -> Iterator[datetime]:
        for each in CronSim(self.expression, begin.astimezone(self.zone)):
            found = each.astimezone(UTC)
            if found > after:  # an hour that comes twice begins before itself
                yield found
