"""Scheduled Backups on the fakes: each due time once, whoever dies; retention; metrics."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock_operator.engine import Key
from penstock_operator.engine.backup_times import completed_times, following_times, overdue_times
from penstock_operator.links.counts import Counts
from support.backup_jobs import VOLUME, end_job, jobs, status
from support.operator_world import OperatorWorld

NIGHTLY = Key("ScheduledBackup", "default", "nightly")
SPEC: dict[str, Any] = {"schedule": "0 2 * * *", "template": {"target": VOLUME}}
FIRST, SECOND = "nightly-20260101-020000", "nightly-20260102-020000"


@pytest.fixture
def world() -> OperatorWorld:
    made = OperatorWorld()
    made.start_cluster()
    return made


def schedule(world: OperatorWorld, **spec: Any) -> None:
    world.apply("ScheduledBackup", "nightly", {**SPEC, **spec}, creationTimestamp="2026-01-01T00:00:00Z")
    world.settle()


def look(world: OperatorWorld, time: str) -> float | None:
    """Reconcile the schedule at a time, and what it wakes."""
    world.world.now = lambda: f"{time}Z"
    again = world.reconcile(NIGHTLY)
    world.settle()
    return again


def end_running(world: OperatorWorld, condition: str, at: str) -> None:
    """End the only Job that runs."""
    (job,) = (each for each in jobs(world) if "status" not in each)
    ended = {"type": condition, "status": "True", "lastTransitionTime": at}
    world.kubernetes.edit("Job", job["metadata"]["name"], {"status": {"conditions": [ended]}})
    world.settle()


def backups(world: OperatorWorld) -> list[str]:
    return [name for kind, _, name in world.kubernetes.objects if kind == "Backup"]


def told(world: OperatorWorld) -> dict[str, Any]:
    found: dict[str, Any] = world.kubernetes.objects["ScheduledBackup", "default", "nightly"]["status"]
    return found


def test_a_backup_is_made_when_it_is_due_and_the_status_tells(world: OperatorWorld) -> None:
    schedule(world)
    assert (backups(world), told(world)["nextScheduleTime"]) == ([], "2026-01-01T02:00:00Z")
    assert world.condition("ScheduledBackup", "nightly") == ("True", "Scheduled")

    again = look(world, "2026-01-01T02:00:00")

    assert backups(world) == [FIRST]
    assert again is not None
    assert again <= 300
    assert look(world, "2026-01-01T01:59:50") is not None
    assert told(world)["lastScheduleTime"] == "2026-01-01T02:00:00Z"
    assert told(world)["lastBackupName"] == FIRST
    assert status(world, FIRST)["phase"] == "Running"
    end_job(world)
    world.settle()
    assert told(world)["lastCompletedName"] == FIRST


def test_the_timer_is_set_to_the_next_time(world: OperatorWorld) -> None:
    schedule(world)

    assert look(world, "2026-01-01T01:59:30") == 31


def test_the_backup_has_the_template_s_fields_and_no_owner(world: OperatorWorld) -> None:
    schedule(world, template={"target": VOLUME, "deletionPolicy": "Delete", "deadlineSeconds": 600})
    look(world, "2026-01-01T02:00:00")
    made = world.kubernetes.objects["Backup", "default", FIRST]

    assert made["spec"]["deletionPolicy"] == "Delete"
    assert made["spec"]["deadlineSeconds"] == 600
    assert made["spec"]["clusterRef"] == {"name": "mq"}
    assert made["metadata"]["annotations"]["penstock.dev/due"] == "2026-01-01T02:00:00Z"
    world.kubernetes.remove("ScheduledBackup", "nightly")
    world.settle()
    assert backups(world) == [FIRST], "backups outlive their schedule"


def test_a_time_that_is_due_while_a_backup_runs_is_skipped_and_told(world: OperatorWorld) -> None:
    schedule(world)
    look(world, "2026-01-01T02:00:00")

    look(world, "2026-01-02T02:00:00")

    assert backups(world) == [FIRST]
    assert world.condition("ScheduledBackup", "nightly") == ("True", "Skipped")
    assert world.kubernetes.events.count(("ScheduledBackup", "nightly", "BackupSkipped")) == 1
    look(world, "2026-01-02T03:00:00")
    assert world.condition("ScheduledBackup", "nightly") == ("True", "Skipped")
    end_job(world)
    world.settle()
    assert backups(world) == [FIRST], "a skipped time is not made up"
    look(world, "2026-01-03T02:00:00")
    assert world.condition("ScheduledBackup", "nightly") == ("True", "Scheduled")
    assert len(backups(world)) == 2


def test_after_an_outage_one_missed_time_is_made_up(world: OperatorWorld) -> None:
    schedule(world)
    world.stop()
    world.start()
    look(world, "2026-03-01T12:00:00")

    assert backups(world) == ["nightly-20260301-020000"]
    assert ("ScheduledBackup", "nightly", "BackupsMissed") in world.kubernetes.events


def test_the_first_backup_is_made_at_once_if_asked(world: OperatorWorld) -> None:
    schedule(world, immediate=True)
    assert backups(world) == ["nightly-20260101-000000"]

    world.look_again()
    assert len(backups(world)) == 1


def test_a_suspended_schedule_makes_nothing_and_makes_nothing_up(world: OperatorWorld) -> None:
    schedule(world, suspend=True)
    look(world, "2026-01-02T12:00:00")
    assert backups(world) == []
    assert world.condition("ScheduledBackup", "nightly") == ("False", "Suspended")

    world.kubernetes.change("ScheduledBackup", "nightly", {"suspend": False})
    world.settle()
    assert backups(world) == []
    assert told(world)["nextScheduleTime"] == "2026-01-03T02:00:00Z"


def test_a_wrong_schedule_is_told(world: OperatorWorld) -> None:
    schedule(world, schedule="61 2 * * *")

    assert world.condition("ScheduledBackup", "nightly") == ("False", "InvalidSpec")


def test_old_backups_go_by_retention_and_the_files_as_the_template_says(world: OperatorWorld) -> None:
    schedule(world, retention={"count": 1})
    for day in (1, 2, 3):
        look(world, f"2026-01-0{day}T02:00:00")
        end_running(world, "Complete", f"2026-01-0{day}T02:05:00Z")

    assert backups(world) == ["nightly-20260103-020000"]
    assert world.kubernetes.events.count(("ScheduledBackup", "nightly", "BackupExpired")) == 2


def test_a_name_that_is_taken_is_told_and_the_other_backup_left(world: OperatorWorld) -> None:
    world.apply("Backup", FIRST, {"target": VOLUME})
    world.settle()
    schedule(world)
    look(world, "2026-01-01T02:00:00")

    assert world.condition("ScheduledBackup", "nightly") == ("False", "NameTaken")
    assert told(world).get("lastScheduleTime") is None


def test_a_backup_that_kubernetes_refuses_is_tried_again(world: OperatorWorld) -> None:
    schedule(world)
    world.kubernetes.kinds_refused.add("Backup")
    again = look(world, "2026-01-01T02:00:00")
    assert world.condition("ScheduledBackup", "nightly") == ("False", "BackupRefused")
    assert again == 60

    world.kubernetes.kinds_refused.clear()
    look(world, "2026-01-01T02:01:00")
    assert backups(world) == [FIRST]


class DiedError(Exception):
    """The process ended."""


def die_before(world: OperatorWorld, step: int) -> None:
    left = [step]

    def before(write: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise DiedError
            return write(*arguments, **options)

        return wrapped

    for name in ("patch", "create", "delete", "tell"):
        setattr(world.kubernetes, name, before(getattr(world.kubernetes, name)))


@pytest.mark.parametrize("step", range(1, 8))
def test_each_due_time_has_one_backup_whenever_the_operator_dies(world: OperatorWorld, step: int) -> None:
    schedule(world, immediate=True)
    end_job(world)
    world.settle()
    die_before(world, step)
    world.kubernetes.edit("ScheduledBackup", "nightly", {"spec": {"retention": {"count": 1}}})
    world.waiting.clear()
    for time in ("2026-01-01T02:00:00", "2026-01-01T02:00:10"):
        try:
            look(world, time)
        except DiedError:
            world.stop()
            world.start()
            world.waiting.clear()

    assert backups(world) == ["nightly-20260101-000000", FIRST]
    assert [each[:2] for each in world.kubernetes.writes].count(("create", "Backup")) <= 3
    assert told(world)["lastScheduleTime"] == "2026-01-01T02:00:00Z"


def test_the_metrics_have_the_newest_completed_backup_and_the_next_time(world: OperatorWorld) -> None:
    schedule(world, immediate=True)
    end_job(world)
    world.settle()
    counts = Counts()
    assert "penstock_operator_backup_completed_timestamp_seconds" in counts.exposition().decode(), "named without any"
    counts.backups.read_by(lambda: completed_times(world.store), lambda: following_times(world.store), dict)
    text = counts.exposition().decode()

    completed = 'penstock_operator_backup_completed_timestamp_seconds{cluster="mq",namespace="default"} 1.7672259e+09'
    following = 'penstock_operator_scheduled_backup_next_timestamp_seconds{name="nightly",namespace="default"} 1.767232'
    assert completed in text
    assert following in text


def overdue(world: OperatorWorld) -> dict[tuple[str, str], float]:
    return dict(overdue_times(world.store))


def test_a_backup_that_is_due_is_overdue_after_the_time_that_it_may_take(world: OperatorWorld) -> None:
    # Backups that failed every night told no one until the newest one was old.
    schedule(world, template={"target": VOLUME, "deadlineSeconds": 600})
    assert overdue(world) == {}

    look(world, "2026-01-01T02:00:00")
    due = datetime(2026, 1, 1, 2, tzinfo=UTC).timestamp()
    assert told(world)["dueSince"] == "2026-01-01T02:00:00Z"
    assert overdue(world) == {("default", "nightly"): due + 600}

    end_running(world, "Failed", "2026-01-01T02:05:00Z")
    look(world, "2026-01-02T02:00:00")
    assert overdue(world) == {("default", "nightly"): due + 600}, "a second one does not make the first one good"

    end_running(world, "Complete", "2026-01-02T02:05:00Z")
    assert "dueSince" not in told(world)
    assert overdue(world) == {}


def test_a_backup_that_kubernetes_refuses_is_overdue_and_one_of_a_suspended_schedule_is_not(
    world: OperatorWorld,
) -> None:
    schedule(world)
    world.kubernetes.kinds_refused.add("Backup")
    look(world, "2026-01-01T02:00:00")
    assert list(overdue(world)) == [("default", "nightly")]

    world.kubernetes.change("ScheduledBackup", "nightly", {"suspend": True})
    world.settle()
    assert overdue(world) == {}
