"""Decides the next step of a ScheduledBackup from its spec, its status, the time and its Backups. Pure.

One Backup at a time: a time that is due while one runs is skipped. Of several times that were missed, the last one is
done late. A Backup is named after its due time, so that it is made once, whoever makes it. Only completed Backups that
the schedule made are deleted, and never the newest one. A time that was due stays so until a Backup of it, or of a
later time, has completed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from penstock_operator.api.backup import Retention, ScheduledBackupSpec
from penstock_operator.desired.backup import Phase, has_ended, phase_of
from penstock_operator.desired.cron import Cron
from penstock_operator.desired.naming import DUE_ANNOTATION, SCHEDULE_ANNOTATION, SCHEDULE_LABEL

Manifest = dict[str, Any]
_NEVER: Final = datetime.min.replace(tzinfo=UTC)
_UNITS: Final = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}


@dataclass(frozen=True, slots=True)
class Make:
    """Make the Backup of a due time. `missed` is the first of the times before it that were missed."""

    name: str
    due: datetime
    missed: datetime | None = None


@dataclass(frozen=True, slots=True)
class Skip:
    """Skip a due time, as a Backup runs."""

    due: datetime
    running: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a Backup that its retention does not keep."""

    name: str


Action = Make | Skip | Delete


@dataclass(frozen=True, slots=True)
class Schedule:
    """A ScheduledBackup: its name and uid, when it was made, and what its status has of the last decision."""

    name: str
    uid: str
    made_at: datetime
    last: datetime | None = None
    due_since: datetime | None = None

    def owns(self, backup: Manifest) -> bool:
        metadata = backup["metadata"]
        is_named = (metadata.get("labels") or {}).get(SCHEDULE_LABEL) == self.name
        return is_named and (metadata.get("annotations") or {}).get(SCHEDULE_ANNOTATION) == self.uid


@dataclass(frozen=True, slots=True)
class Decision:
    """The actions in their order, the last time that is dealt with then, and the next one.

    `due_since` is the first time that was due and that no completed Backup is of; times that are left out do not count.
    """

    actions: tuple[Action, ...]
    last: datetime | None
    following: datetime | None
    due_since: datetime | None = None


def decide(
    spec: ScheduledBackupSpec, cron: Cron, schedule: Schedule, now: datetime, backups: Iterable[Manifest]
) -> Decision:
    """Return what to do. The Backups may be others' as well."""
    ours = [each for each in backups if schedule.owns(each)]
    since = schedule.last or schedule.made_at
    due = cron.latest(since, now)
    is_first = schedule.last is None and spec.immediate
    if due is None and is_first and schedule.made_at <= now:
        due = schedule.made_at
    deletions = [Delete(name) for name in expired(spec.retention, now, ours)]
    if spec.suspend:
        return Decision(tuple(deletions), due or schedule.last, None)
    first = None if due is None else min(cron.next(since) or due, due)
    actions = [] if due is None else _due(schedule, first, due, ours)
    due_since = _due_since(schedule.due_since, first, ours)
    return Decision((*actions, *deletions), due or schedule.last, cron.next(max(now, since)), due_since)


def _due(schedule: Schedule, first: datetime | None, due: datetime, ours: list[Manifest]) -> list[Action]:
    name = backup_name(schedule.name, due)
    if any(each["metadata"]["name"] == name for each in ours):
        return []  # it was made before a crash
    running = sorted(each["metadata"]["name"] for each in ours if not has_ended(each))
    if running:
        return [Skip(due, running[0])]
    return [Make(name, due, first if first is not None and first < due else None)]


def _due_since(known: datetime | None, first: datetime | None, ours: Iterable[Manifest]) -> datetime | None:
    """Return the first of the times that were due, before and now, after that of the newest completed Backup."""
    done = max((_due_of(each) for each in ours if phase_of(each) is Phase.COMPLETED), default=_NEVER)
    return min((each for each in (known, first) if each is not None and each > done), default=None)


def _due_of(backup: Manifest) -> datetime:
    annotations = backup["metadata"].get("annotations") or {}
    return parse_time(str(annotations.get(DUE_ANNOTATION) or ""), _NEVER)


def expired(retention: Retention, now: datetime, ours: Iterable[Manifest]) -> list[str]:
    """Return the names of the completed Backups that are not kept, oldest first."""
    done = [each for each in ours if phase_of(each) is Phase.COMPLETED and "deletionTimestamp" not in each["metadata"]]
    newest_first = sorted(done, key=_completed_at, reverse=True)
    age = None if retention.age is None else int(retention.age[:-1]) * _UNITS[retention.age[-1]]
    found = []
    for index, each in enumerate(newest_first[1:], 1):
        is_beyond = retention.count is not None and index >= retention.count
        is_old = age is not None and now - parse_time(_completed_at(each)[0], now) > age
        if is_beyond or is_old:
            found.append(str(each["metadata"]["name"]))
    return found[::-1]


def newest(ours: Iterable[Manifest]) -> str | None:
    """Return the name of the newest completed Backup."""
    done = [each for each in ours if phase_of(each) is Phase.COMPLETED]
    return str(max(done, key=_completed_at)["metadata"]["name"]) if done else None


def backup_name(schedule: str, due: datetime) -> str:
    """Return the name of the Backup of a due time."""
    return f"{schedule}-{due.astimezone(UTC):%Y%m%d-%H%M%S}"


def parse_time(text: str, default: datetime) -> datetime:
    """Return a time of Kubernetes in UTC; the default for one that is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return default
    return found.astimezone(UTC).replace(microsecond=0) if found.tzinfo is not None else default


def _completed_at(backup: Manifest) -> tuple[str, str]:
    return str((backup.get("status") or {}).get("completedAt") or ""), str(backup["metadata"]["name"])
