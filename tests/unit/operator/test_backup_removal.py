"""Backups that are deleted: their file goes if the manifest says so, and the deletion always ends."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock_operator.engine import Key
from support.backup_jobs import REPORT, VOLUME, end_job, jobs, status, the_job
from support.operator_world import OperatorWorld

ONE = Key("Backup", "default", "one")
STEPS_MAX = 10


@pytest.fixture
def world() -> OperatorWorld:
    made = OperatorWorld()
    made.start_cluster()
    return made


def completed(world: OperatorWorld, policy: str = "Delete") -> None:
    world.apply("Backup", "one", {"target": VOLUME, "deletionPolicy": policy})
    world.settle()
    end_job(world)
    world.settle()


def remove(world: OperatorWorld) -> None:
    world.kubernetes.remove("Backup", "one")
    world.settle()


def turn(world: OperatorWorld) -> None:
    world.reconcile(ONE)
    world.settle()


def is_gone(world: OperatorWorld) -> bool:
    return world.kubernetes.get("Backup", "one") is None


def test_a_file_that_is_retained_stays_and_takes_no_job(world: OperatorWorld) -> None:
    completed(world, "Retain")

    remove(world)

    assert is_gone(world)
    assert jobs(world) == []


def test_a_file_is_deleted_by_a_job_before_the_backup_goes(world: OperatorWorld) -> None:
    completed(world)
    remove(world)
    assert world.condition("Backup", "one") == ("False", "FileDeleting")
    job = the_job(world, "-delete")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"][3:] == ["sh", "backup", "delete", "/backup/one.backup", "--sha256", "ab" * 32]
    assert job["spec"]["activeDeadlineSeconds"] == 3_600

    end_job(world, "", suffix="-delete")
    turn(world)

    assert is_gone(world)
    assert not [event for event in world.kubernetes.events if event[2] == "LeftAtTarget"]


@pytest.mark.parametrize("report", ["", json.dumps(REPORT | {"sha256": "--uri=penstock://elsewhere"})])
def test_a_file_whose_digest_is_not_known_is_deleted_without_reading_it(world: OperatorWorld, report: str) -> None:
    world.apply("Backup", "one", {"target": VOLUME, "deletionPolicy": "Delete"})
    world.settle()
    end_job(world, report)
    world.settle()

    remove(world)

    job = the_job(world, "-delete")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"][3:] == ["sh", "backup", "delete", "/backup/one.backup"]
    assert job["spec"]["activeDeadlineSeconds"] == 300


def test_a_file_that_cannot_be_deleted_is_left_and_told(world: OperatorWorld) -> None:
    completed(world)
    remove(world)

    end_job(
        world, "penstock: cannot use '/backup': read-only file system", failure="BackoffLimitExceeded", suffix="-delete"
    )
    turn(world)

    assert is_gone(world)
    assert ("Backup", "one", "LeftAtTarget") in world.kubernetes.events
    assert "read-only file system" in world.kubernetes.messages[-1]
    assert "volume backups: one.backup" in world.kubernetes.messages[-1]


def test_the_policy_can_be_changed_until_the_end(world: OperatorWorld) -> None:
    completed(world, "Retain")
    world.kubernetes.change("Backup", "one", {"deletionPolicy": "Delete"})
    world.settle()
    remove(world)
    assert the_job(world, "-delete")

    world.kubernetes.finish("Backup", "one")
    world.apply("Backup", "two", {"target": VOLUME, "deletionPolicy": "Delete"})
    world.settle()
    world.kubernetes.change("Backup", "two", {"deletionPolicy": "Retain"})
    world.settle()
    assert world.kubernetes.objects["Backup", "default", "two"]["metadata"]["finalizers"] == []


def test_a_job_that_runs_is_stopped_with_its_pods_before_the_backup_goes(world: OperatorWorld) -> None:
    world.apply("Backup", "one", {"target": VOLUME, "deletionPolicy": "Delete"})
    world.settle()
    world.kubernetes.kinds_lingering.add("Job")
    remove(world)
    assert world.condition("Backup", "one") == ("False", "JobRuns")
    assert "deletionTimestamp" in the_job(world)["metadata"]
    turn(world)
    assert not is_gone(world)

    world.kubernetes.kinds_lingering.clear()
    world.kubernetes.finish("Job", the_job(world)["metadata"]["name"])
    turn(world)

    assert is_gone(world)
    assert jobs(world) == []
    assert "its Job was stopped" in world.kubernetes.messages[-1]


def test_a_job_that_ended_before_it_could_be_stopped_has_a_file_to_delete(world: OperatorWorld) -> None:
    world.apply("Backup", "one", {"target": VOLUME, "deletionPolicy": "Delete"})
    world.settle()
    end_job(world)
    world.waiting.clear()

    remove(world)

    assert the_job(world, "-delete")


def test_the_file_of_a_backup_that_failed_may_be_another_s_and_stays(world: OperatorWorld) -> None:
    world.apply("Backup", "one", {"target": VOLUME, "deletionPolicy": "Delete"})
    world.settle()
    end_job(world, "penstock: it exists", failure="BackoffLimitExceeded")
    world.settle()

    remove(world)

    assert is_gone(world)
    assert not [each for each in jobs(world) if each["metadata"]["name"].endswith("-delete")]


def test_a_backup_that_never_began_goes_at_once(world: OperatorWorld) -> None:
    world.apply("Backup", "one", {"clusterRef": {"name": "other"}, "target": VOLUME, "deletionPolicy": "Delete"})
    world.settle()

    remove(world)

    assert is_gone(world)


def test_a_file_is_deleted_with_the_image_of_the_backup_when_the_cluster_is_gone(world: OperatorWorld) -> None:
    completed(world)
    world.kubernetes.remove("Cluster", "mq")
    world.settle()

    remove(world)

    (container,) = the_job(world, "-delete")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "penstock:test"


def test_a_namespace_that_is_deleted_does_not_wait_for_a_file(world: OperatorWorld) -> None:
    """Kubernetes refuses new Jobs there, for ever."""
    completed(world)
    world.kubernetes.kinds_refused.add("Job")

    remove(world)

    assert is_gone(world)
    assert ("Backup", "one", "LeftAtTarget") in world.kubernetes.events


def test_the_annotation_releases_a_backup(world: OperatorWorld) -> None:
    completed(world)
    remove(world)

    world.kubernetes.edit("Backup", "one", {"metadata": {"annotations": {"penstock.dev/release": "true"}}})
    turn(world)

    assert is_gone(world)
    assert ("Backup", "one", "Released") in world.kubernetes.events


class DiedError(Exception):
    """The process ended."""


def die_before(world: OperatorWorld, step: int) -> None:
    """End the process before its n-th write to Kubernetes, once."""
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


def settle_through(world: OperatorWorld) -> None:
    try:
        world.add(ONE)
        world.settle()
    except DiedError:
        world.stop()
        world.start()
        world.settle()


@pytest.mark.parametrize("step", range(1, STEPS_MAX))
def test_a_backup_is_made_once_and_deleted_whenever_the_operator_dies(world: OperatorWorld, step: int) -> None:
    die_before(world, step)
    world.apply("Backup", "one", {"target": VOLUME, "deletionPolicy": "Delete"})
    settle_through(world)
    first = the_job(world)["metadata"]["uid"]
    assert status(world)["phase"] == "Running"
    end_job(world)
    settle_through(world)
    assert (status(world)["phase"], status(world)["bytes"]) == ("Completed", 12_345)
    assert the_job(world)["metadata"]["uid"] == first

    world.kubernetes.remove("Backup", "one")
    settle_through(world)
    end_job(world, "", suffix="-delete")
    settle_through(world)

    assert is_gone(world)
    assert [each[:2] for each in world.kubernetes.writes].count(("create", "Job")) == 2
