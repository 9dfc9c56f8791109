"""Our manifests are valid for the oldest Kubernetes that docs/kubernetes.md names."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock_operator.api import KINDS, BackupSpec, ClusterSpec, Target
from penstock_operator.api.crds import crd
from penstock_operator.desired import Owner
from penstock_operator.desired.backup_job import Access, backup_job, deletion_job
from penstock_operator.desired.cluster_plan import plan
from penstock_operator.desired.workload import stateful_set
from tools.check_fields import OLDEST, unknown

ROOT = Path(__file__).parents[3]
GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.yaml"))
# CEL functions of 1.31: those of Kubernetes' own since 1.29 at the latest.
FUNCTIONS = {"compareTo", "contains", "double", "has", "matches", "quantity", "size", "startsWith"}


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_the_oldest_kubernetes_knows_every_field_of_the_children(path: Path) -> None:
    assert [problem for each in yaml.safe_load_all(path.read_text()) for problem in unknown(each)] == []


@pytest.mark.parametrize(
    "target",
    [
        {"volume": {"claimName": "backups"}},
        {"s3": {"bucket": "backups", "endpoint": "http://minio", "credentialsSecret": {"name": "s3"}}},
    ],
)
def test_the_oldest_kubernetes_knows_every_field_of_the_pods_of_backups(target: dict[str, Any]) -> None:
    """Their Jobs have fields of batch/v1 from the beginning; the pods are checked as those of a StatefulSet."""
    spec = BackupSpec.model_validate({"clusterRef": {"name": "mq"}, "target": target})
    owner = Owner("mq", "shop", "uid-1", ClusterSpec.model_validate({"image": "penstock:test"}))
    manifest = {"metadata": {"name": "one", "namespace": "shop", "uid": "uid-2"}}
    made = [backup_job(manifest, spec, owner, Access("admin")), deletion_job(manifest, spec, "penstock:test", [])]
    restoring = stateful_set(owner, plan(owner, restore=Target.model_validate(target).of("one")))

    for job in made:
        pod = {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"template": job["spec"]["template"]}}
        assert unknown(pod) == []
    assert unknown(restoring) == []


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_the_oldest_kubernetes_takes_the_kinds(kind: Any) -> None:
    manifest = crd(kind)

    assert unknown(manifest) == []
    called = {name for expression in rules(manifest) for name in re.findall(r"\b([A-Za-z_]\w*)\(", expression)}
    assert called <= FUNCTIONS


def rules(value: Any) -> list[str]:
    """Return every CEL expression in a schema."""
    if isinstance(value, list):
        return [each for item in value for each in rules(item)]
    if not isinstance(value, dict):
        return []
    own = [each["rule"] for each in value.get("x-kubernetes-validations", ())]
    return own + [each for item in value.values() for each in rules(item)]


def test_a_field_that_came_later_is_found() -> None:
    spec = {
        "template": {"spec": {"containers": [{"name": "broker", "restartPolicyRules": []}], "hostnameOverride": "x"}}
    }

    found = unknown({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "mq"}, "spec": spec})

    assert [each.rsplit(".", 1)[1] for each in found] == ["hostnameOverride", "restartPolicyRules"]


def test_the_page_names_the_version_that_is_checked() -> None:
    assert f"Kubernetes {OLDEST} or newer" in (ROOT / "docs" / "kubernetes.md").read_text()
