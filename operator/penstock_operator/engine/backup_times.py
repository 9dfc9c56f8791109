"""Times of backups for metrics, read from the store."""

from datetime import UTC, datetime
from typing import Final

from penstock_operator.api.backup import DEADLINE_SECONDS
from penstock_operator.desired.backup import newest_completed
from penstock_operator.desired.schedule import parse_time
from penstock_operator.engine.store import Store

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Times = dict[tuple[str, str], float]


def completed_times(store: Store) -> Times:
    """Return when the newest completed Backup of each Cluster was completed, by the Cluster's namespace and name."""
    return {place: _seconds(at) for place, at in newest_completed(store.of_kind("Backup")).items()}


def following_times(store: Store) -> Times:
    """Return when the next Backup of each schedule is due, by its namespace and name."""
    found: Times = {}
    for each in store.of_kind("ScheduledBackup"):
        at = (each.get("status") or {}).get("nextScheduleTime")
        if at:
            found[each["metadata"]["namespace"], each["metadata"]["name"]] = _seconds(str(at))
    return found


def overdue_times(store: Store) -> Times:
    """Return when the Backup of each schedule that is due is overdue: after the time that it may take."""
    found: Times = {}
    for each in store.of_kind("ScheduledBackup"):
        since = (each.get("status") or {}).get("dueSince")
        if since:
            deadline = (each["spec"].get("template") or {}).get("deadlineSeconds", DEADLINE_SECONDS)
            found[each["metadata"]["namespace"], each["metadata"]["name"]] = _seconds(str(since)) + deadline
    return found


def _seconds(time: str) -> float:
    return parse_time(time, _EPOCH).timestamp()
