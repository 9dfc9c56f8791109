"""Backups on the fakes: one Job for each, its outcome in the status, and what is said when it cannot be."""

import json
from typing import Any

import pytest

from penstock_operator.engine import Key
from penstock_operator.engine.workers import Later
from penstock_operator.links import ApiError
from support.backup_jobs import REPORT, S3, VOLUME, add_pod, end_job, jobs, status, the_job
from support.operator_world import OperatorWorld

ONE = Key("Backup", "default", "one")


@pytest.fixture
def world() -> OperatorWorld:
    made = OperatorWorld()
    made.start_cluster()
    return made


def back_up(world: OperatorWorld, name: str = "one", **spec: Any) -> None:
    world.apply("Backup", name, {"target": VOLUME, **spec})
    world.settle()


def pod(world: OperatorWorld) -> dict[str, Any]:
    found: dict[str, Any] = the_job(world)["spec"]["template"]["spec"]
    return found


def test_a_backup_makes_one_job_and_has_its_outcome_in_the_status(world: OperatorWorld) -> None:
    back_up(world)
    assert status(world)["phase"] == "Running"
    assert status(world)["job"] == the_job(world)["metadata"]["name"]

    end_job(world)
    world.settle()

    found = status(world)
    assert (found["phase"], found["bytes"], found["vhosts"]) == ("Completed", 12_345, 2)
    assert (found["sha256"], found["dataId"], found["brokerVersion"]) == ("ab" * 32, "data-1", "0.1.0")
    assert (found["startedAt"], found["completedAt"]) == ("2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z")
    assert (found["target"], found["image"]) == ("volume backups: one.backup", "penstock:test")
    assert world.condition("Backup", "one") == ("True", "Completed")
    assert world.condition("Backup", "one", "Completed") == ("True", "Completed")
    assert ("Backup", "one", "Completed") in world.kubernetes.events


def test_the_job_logs_in_by_a_file_and_its_pod_is_restricted(world: OperatorWorld) -> None:
    back_up(world, deadlineSeconds=600)
    job, spec = the_job(world), pod(world)
    (container,) = spec["containers"]

    assert (job["spec"]["backoffLimit"], job["spec"]["activeDeadlineSeconds"]) == (2, 600)
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
    assert container["image"] == "penstock:test"
    assert container["command"][3:] == [
        *("/backup", "backup", "download", "/backup/one.backup", "--output", "json"),
        *("--uri", "penstock://admin@mq.default.svc:5680/"),
        *("--password-file", "/etc/penstock-administrator/password"),
    ]
    assert "generated" not in json.dumps(job)
    secret = next(each["secret"] for each in spec["volumes"] if each["name"] == "administrator")
    assert secret == {"secretName": "mq-default-user", "items": [{"key": "password", "path": "password"}]}
    assert job["spec"]["template"]["metadata"]["labels"]["penstock.dev/backup-of"] == "mq"
    assert job["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"] != "penstock", (
        "no Service selects it"
    )


def test_a_bucket_gets_its_credentials_from_a_secret(world: OperatorWorld) -> None:
    target = {"s3": {**S3["s3"], "endpoint": "http://minio:9000", "region": "eu-north-1"}}
    back_up(world, target=target)
    (container,) = pod(world)["containers"]

    plain = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    assert plain.pop("PENSTOCK_BACKUP_REQUEST_ID")
    assert plain == {"AWS_REGION": "eu-north-1", "AWS_ENDPOINT_URL": "http://minio:9000", "AWS_ALLOW_HTTP": "true"}
    secrets = {each["name"]: each["valueFrom"]["secretKeyRef"] for each in container["env"] if "valueFrom" in each}
    assert secrets["AWS_SECRET_ACCESS_KEY"] == {"name": "s3", "key": "AWS_SECRET_ACCESS_KEY"}
    assert "s3://backups/mq/one.backup" in container["command"]
    assert status(world)["target"] == "s3://backups/mq/one.backup"


def test_a_file_that_is_named_is_taken_as_it_is(world: OperatorWorld) -> None:
    back_up(world, target={"volume": {"claimName": "backups", "path": "weekly/first.tar"}})
    (container,) = pod(world)["containers"]

    assert container["command"][3:7] == ["/backup/weekly", "backup", "download", "/backup/weekly/first.tar"]


def test_a_finished_backup_is_never_run_again(world: OperatorWorld) -> None:
    back_up(world)
    end_job(world)
    world.settle()

    world.kubernetes.remove("Job", the_job(world)["metadata"]["name"])
    world.kubernetes.change("Backup", "one", {"deadlineSeconds": 61, "target": S3})
    world.settle()
    world.look_again()

    assert jobs(world) == []
    assert status(world)["phase"] == "Completed"


def test_a_backup_that_failed_says_why_and_is_not_run_again(world: OperatorWorld) -> None:
    back_up(world)
    log = "Traceback\npenstock: '/backup/one.backup' exists; choose another name\n"
    end_job(world, log, failure="BackoffLimitExceeded")
    world.settle()
    world.look_again()

    assert status(world)["phase"] == "Failed"
    assert world.condition("Backup", "one", "Completed") == ("False", "BackupFailed")
    (ready,) = (each for each in status(world)["conditions"] if each["type"] == "Ready")
    assert ready["message"] == "'/backup/one.backup' exists; choose another name"
    assert ("Backup", "one", "BackupFailed") in world.kubernetes.events
    assert "completedAt" not in status(world)
    assert len(jobs(world)) == 1


@pytest.mark.parametrize("message", ["", "{", "[1]", '"x"', "null", "[" * 100_000, "x" * 1_000_000, '{"bytes": -1}'])
def test_a_report_that_cannot_be_read_costs_the_sizes_only(world: OperatorWorld, message: str) -> None:
    back_up(world)

    end_job(world, message)
    world.settle()

    assert status(world)["phase"] == "Completed"
    assert "bytes" not in status(world)
    assert len(json.dumps(status(world))) < 4_000


def test_a_report_takes_only_words_and_counts(world: OperatorWorld) -> None:
    back_up(world)
    strange = {**REPORT, "bytes": True, "vhosts": 3, "sha256": "x" * 1_000, "data_id": "a\nb", "version": {"a": 1}}

    end_job(world, json.dumps(strange))
    world.settle()

    assert status(world)["vhosts"] == 3
    assert not {"bytes", "sha256", "dataId", "brokerVersion"} & status(world).keys()


def test_a_megabyte_of_a_failed_pod_becomes_a_sentence(world: OperatorWorld) -> None:
    back_up(world)

    end_job(world, "\x1b[31m" + "é" * 1_000_000, failure="BackoffLimitExceeded")
    world.settle()

    (ready,) = (each for each in status(world)["conditions"] if each["type"] == "Ready")
    assert len(ready["message"]) <= 1_000
    assert "\x1b" not in ready["message"]


def test_a_job_that_was_deleted_by_hand_fails_the_backup(world: OperatorWorld) -> None:
    back_up(world)

    world.kubernetes.remove("Job", the_job(world)["metadata"]["name"])
    world.settle()
    world.look_again()

    assert (status(world)["phase"], *world.condition("Backup", "one")) == ("Failed", "False", "JobDeleted")
    assert jobs(world) == []


def test_a_deadline_that_passed_is_told_with_what_the_pod_waited_for(world: OperatorWorld) -> None:
    back_up(world)
    unbound = {"type": "PodScheduled", "status": "False", "message": 'persistentvolumeclaim "backups" not found'}
    add_pod(world, the_job(world), "", is_whole=False, conditions=[unbound], phase="Pending", containerStatuses=[])
    world.reconcile(ONE)
    assert world.condition("Backup", "one") == ("False", "Unschedulable")

    failed = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}
    world.kubernetes.edit("Job", the_job(world)["metadata"]["name"], {"status": {"conditions": [failed]}})
    world.settle()

    (ready,) = (each for each in status(world)["conditions"] if each["type"] == "Ready")
    assert ready["reason"] == "DeadlineExceeded"
    assert '"backups" not found' in ready["message"]


def test_a_backup_waits_for_its_cluster_and_begins_when_it_serves() -> None:
    world = OperatorWorld()
    back_up(world)
    assert world.condition("Backup", "one") == ("False", "ClusterNotFound")
    assert status(world)["phase"] == "Pending"

    world.start_cluster()

    assert status(world)["phase"] == "Running"


def test_a_backup_that_waits_for_its_cluster_is_looked_at_with_the_resync_only() -> None:
    """A thousand Backups of a Cluster that is stopped would ask for their Jobs all the time."""
    world = OperatorWorld()
    back_up(world)

    assert world.reconcile(ONE) == 300.0


def test_a_backup_that_ran_already_is_not_run_again_where_the_store_is_behind(world: OperatorWorld) -> None:
    world.apply("Backup", "one", {"target": VOLUME})
    world.kubernetes.objects["Backup", "default", "one"]["status"] = {"phase": "Completed"}
    with pytest.raises(Later):
        world.reconcile(ONE)

    assert jobs(world) == []
    assert status(world) == {"phase": "Completed"}


def test_a_status_that_the_store_does_not_have_yet_is_not_overwritten(world: OperatorWorld) -> None:
    world.kubernetes.change("Cluster", "mq", {"paused": True})
    world.settle()
    world.apply("Backup", "one", {"target": VOLUME})
    known = world.store.get(ONE)
    assert known is not None
    world.kubernetes.edit("Backup", "one", {"status": {"phase": "Completed"}})
    world.store.drop(ONE)
    world.store.put(known)
    with pytest.raises(ApiError, match="changed meanwhile"):
        world.reconcile(ONE)

    assert status(world) == {"phase": "Completed"}


def test_a_paused_cluster_or_backup_delays_a_backup_and_not_its_outcome(world: OperatorWorld) -> None:
    back_up(world, "first")
    world.kubernetes.change("Cluster", "mq", {"paused": True})
    world.settle()
    back_up(world)
    world.apply("Backup", "held", {"target": VOLUME}, annotations={"penstock.dev/paused": "true"})
    world.settle()
    end_job(world)
    world.settle()

    assert world.condition("Backup", "one") == ("False", "ClusterPaused")
    assert world.condition("Backup", "held") == ("False", "Paused")
    assert status(world, "first")["phase"] == "Completed"
    world.kubernetes.change("Cluster", "mq", {"paused": False})
    world.settle()
    assert status(world)["phase"] == "Running"


def test_a_backup_waits_while_the_broker_has_another_password(world: OperatorWorld) -> None:
    pending = {"type": "PasswordSynced", "status": "False", "reason": "PasswordPending"}
    conditions = world.kubernetes.objects["Cluster", "default", "mq"]["status"]["conditions"]
    others = [each for each in conditions if each["type"] != "PasswordSynced"]
    world.kubernetes.edit("Cluster", "mq", {"status": {"conditions": [*others, pending]}})
    world.waiting.clear()
    world.apply("Backup", "one", {"target": VOLUME})
    world.reconcile(ONE)

    assert world.condition("Backup", "one") == ("False", "PasswordPending")
    assert jobs(world) == []


def test_a_job_that_kubernetes_refuses_is_told_and_tried_again(world: OperatorWorld) -> None:
    world.kubernetes.kinds_refused.add("Job")
    back_up(world)
    assert world.condition("Backup", "one") == ("False", "JobRefused")

    world.kubernetes.kinds_refused.clear()
    again = world.reconcile(ONE)

    assert again is not None
    assert status(world)["phase"] == "Running"


def test_no_job_gets_the_volume_of_a_broker(world: OperatorWorld) -> None:
    back_up(world, target={"volume": {"claimName": "data-mq-0", "path": "node.json"}})

    assert jobs(world) == []
    assert world.condition("Backup", "one") == ("False", "TargetRefused")


def test_a_job_of_another_object_is_not_taken(world: OperatorWorld) -> None:
    world.apply("Backup", "one", {"target": VOLUME}, uid="uid-one")
    world.settle()
    job = the_job(world)
    world.kubernetes.edit("Job", job["metadata"]["name"], {"metadata": {"ownerReferences": []}})
    world.reconcile(ONE)

    assert world.condition("Backup", "one") == ("False", "JobTaken")


def test_a_thousand_backups_cost_no_request_at_a_resync(world: OperatorWorld) -> None:
    for number in range(1_000):
        done = {"phase": "Completed", "completedAt": "2026-01-01T00:00:00Z"}
        manifest = world.apply("Backup", f"old-{number}", {"target": VOLUME})
        world.kubernetes.edit("Backup", manifest["metadata"]["name"], {"status": done})
    world.waiting.clear()
    world.kubernetes.lists.clear()
    world.kubernetes.writes.clear()
    world.census.take()
    assert world.waiting == []
    world.kubernetes.is_away = True

    again = {world.reconcile(key) for key in world.store.all() if key.kind == "Backup"}

    assert again == {None}
    assert world.kubernetes.lists.count("Backup") == 1
    assert world.kubernetes.writes == []
