"""The Job of a backup as plain data: its name, and how it logs in to a broker with TLS."""

import pytest

from penstock_operator.api import BackupSpec, ClusterSpec
from penstock_operator.api.backup import FILE_PATTERN, Target
from penstock_operator.desired import Owner
from penstock_operator.desired.backup_job import Access, backup_job, deletion_job, job_name
from support.kubernetes_fake import Manifest

SPEC = BackupSpec.model_validate({"clusterRef": {"name": "mq"}, "target": {"volume": {"claimName": "backups"}}})
CLUSTER = {
    "image": "penstock:test",
    "tls": {"secretName": "mq-tls"},
    "imagePullSecrets": [{"name": "registry"}],
    "scheduling": {"nodeSelector": {"disk": "fast"}, "tolerations": [{"key": "x", "operator": "Exists"}]},
}


def made(access: Access, name: str = "one") -> Manifest:
    owner = Owner("mq", "shop", "uid-1", ClusterSpec.model_validate(CLUSTER))
    return backup_job({"metadata": {"name": name, "namespace": "shop", "uid": "uid-2"}}, SPEC, owner, access)


def test_the_job_trusts_the_authority_of_the_cluster_and_shows_the_operator_s_certificate() -> None:
    spec = made(Access("admin", True, "operator-tls"))["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    uri = container["command"][container["command"].index("--uri") + 1]

    assert uri == (
        "penstocks://admin@mq.shop.svc:5680/?ca=/etc/penstock-administrator/ca.crt"
        "&cert=/etc/penstock-tls/tls.crt&key=/etc/penstock-tls/tls.key"
    )
    secrets = {each["name"]: each["secret"] for each in spec["volumes"] if "secret" in each}
    assert [each["key"] for each in secrets["administrator"]["items"]] == ["password", "ca.crt"]
    assert secrets["certificate"]["secretName"] == "operator-tls"


def test_a_certificate_of_a_public_authority_needs_no_file() -> None:
    (container,) = made(Access("admin"))["spec"]["template"]["spec"]["containers"]

    assert "penstocks://admin@mq.shop.svc:5680/" in container["command"]


def test_the_pod_runs_where_the_cluster_s_pods_may() -> None:
    spec = made(Access("admin"))["spec"]["template"]["spec"]

    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert spec["nodeSelector"] == {"disk": "fast"}
    assert spec["tolerations"] == [{"key": "x", "operator": "Exists"}]


@pytest.mark.parametrize(
    "target", [{"volume": {"claimName": "b"}}, {"s3": {"bucket": "backups", "credentialsSecret": {"name": "s"}}}]
)
def test_a_retry_knows_the_file_of_its_backup_by_the_backup_s_uid(target: Manifest) -> None:
    # A pod that died between storing and reporting was replaced by pods that failed, as the file existed.
    spec = BackupSpec.model_validate({"clusterRef": {"name": "mq"}, "target": target})
    owner = Owner("mq", "shop", "uid-1", ClusterSpec.model_validate(CLUSTER))
    manifest = {"metadata": {"name": "one", "namespace": "shop", "uid": "uid-2"}}
    (container,) = backup_job(manifest, spec, owner, Access("admin"))["spec"]["template"]["spec"]["containers"]

    assert {"name": "PENSTOCK_BACKUP_REQUEST_ID", "value": "uid-2"} in container["env"]
    (deletion,) = deletion_job(manifest, spec, "penstock:test", [])["spec"]["template"]["spec"]["containers"]
    assert "PENSTOCK_BACKUP_REQUEST_ID" not in str(deletion)


def test_a_pod_that_is_being_stopped_is_replaced_when_it_has_ended() -> None:
    # On a drained node the next pods met the first one's backup, failed at once, and were the last attempts.
    job = made(Access("admin"))

    assert job["spec"]["podReplacementPolicy"] == "Failed"
    assert job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 60


@pytest.mark.parametrize("name", ["one", "a" * 253, "a." * 20 + "b" * 100, "nightly-20260101-020000"])
def test_the_name_of_a_job_fits_a_label_and_is_that_of_one_backup(name: str) -> None:
    names = {job_name(name, uid, suffix) for uid in ("uid-1", "uid-2") for suffix in ("", "-delete")}

    assert len(names) == 4
    assert max(len(each) for each in names) <= 63
    assert not [each for each in names if ".-" in each or "--" in each]
    assert job_name(name, "uid-1") == job_name(name, "uid-1")


@pytest.mark.parametrize(
    "path", ["../x", "a/../x", "/etc/passwd", "a//b", ".hidden", "a/.x", "a b", "$(x)", "-x", "a\n"]
)
def test_a_path_leaves_its_volume_by_no_way(path: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        Target.model_validate({"volume": {"claimName": "backups", "path": path}})
    assert FILE_PATTERN.startswith("^")


def test_a_target_is_one_place() -> None:
    both = {"volume": {"claimName": "a"}, "s3": {"bucket": "bbb", "credentialsSecret": {"name": "s3"}}}
    for wrong in ({}, both):
        with pytest.raises(ValueError, match="write one of them"):
            Target.model_validate(wrong)
