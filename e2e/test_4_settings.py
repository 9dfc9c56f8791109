"""Settings of each type, overrides and volumes in the manifest of a Cluster, and their effect on the broker."""

import json

from e2e.kubectl import Kubectl, until
from e2e.manifests import small_cluster
from e2e.test_4_life import made_namespace, put_secret

NAMESPACE = "settings"
CONFIG = {
    "logLevel": "debug",
    "messageBytesMax": 1_048_576,
    "firstRequestSeconds": 2.5,
    "authBackends": "local,jwt",
    "jwtIssuer": "https://login.invalid",
    "jwtAudience": "penstock",
    "metricsNames": "all",
    "metricsToken": {"secretKeyRef": {"name": "scrape", "key": "token"}},
}
# The broker's own words for the settings of its file and of its environment.
SHOW = ["python3", "/packages/bin/penstock", "config", "show", "--output", "json", "--config"]
FILE = "/etc/penstock/penstock.toml"
SCRAPE = """
import sys, urllib.error, urllib.request
request = urllib.request.Request("http://127.0.0.1:15692/metrics", headers={"Authorization": f"Bearer {sys.argv[1]}"})
try:
    print(urllib.request.urlopen(request, timeout=5).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


def test_settings_of_each_type_reach_the_broker(kubectl: Kubectl) -> None:
    made_namespace(kubectl, NAMESPACE)
    put_secret(kubectl, NAMESPACE, "scrape", {"token": "right"}, "Opaque")
    kubectl.apply(small_cluster("set", config=CONFIG), namespace=NAMESPACE)
    kubectl.wait_ready("psc/set", NAMESPACE)

    shown = kubectl("exec", "set-0", "--namespace", NAMESPACE, "--", *SHOW, FILE)
    for word in ("1048576", "2.5", "local,jwt", "https://login.invalid", "debug", "all"):
        assert word in shown
    assert "right" not in json.dumps(kubectl.get("configmap", "set-config", NAMESPACE))
    assert [scraped(kubectl, token) for token in ("right", "wrong")] == ["200", "401"]


def test_an_override_and_an_extra_volume_reach_the_pod_and_a_privilege_does_not(kubectl: Kubectl) -> None:
    extra = {"name": "extra", "mountPath": "/extra", "readOnly": False, "source": {"emptyDir": {}}}
    broker = {"name": "broker", "env": [{"name": "TEAM", "value": "shop"}]}
    override = {"pod": {"spec": {"containers": [broker]}}, "service": {"spec": {"sessionAffinity": "ClientIP"}}}
    kubectl.apply(small_cluster("set", extraVolumes=[extra], override=override), namespace=NAMESPACE)
    in_pod = ["exec", "set-0", "--namespace", NAMESPACE, "--", "python3", "-c"]
    write = "import os, pathlib; pathlib.Path('/extra/a').write_text('a'); print(os.environ['TEAM'])"
    until(lambda: kubectl(*in_pod, write).strip() == "shop", "the pod has both", 120)
    kubectl.wait_ready("psc/set", NAMESPACE)
    service = kubectl.get("service", "set", NAMESPACE)
    assert service is not None
    assert service["spec"]["sessionAffinity"] == "ClientIP"

    kubectl.apply(small_cluster("set", override={"pod": {"spec": {"hostNetwork": True}}}), namespace=NAMESPACE)
    until(lambda: "hostNetwork cannot be overridden" in kubectl.condition("psc", "set", namespace=NAMESPACE)[2], "told")
    assert kubectl(*in_pod, write).strip() == "shop"


def test_a_setting_of_the_operator_s_own_is_refused(kubectl: Kubectl) -> None:
    wrong = json.dumps(small_cluster("set", config={"dataDir": "/tmp"}))

    done = kubectl.attempt(["kubectl", "apply", "--namespace", NAMESPACE, "-f", "-"], stdin=wrong)

    assert done.returncode != 0
    assert "dataDir is set by the operator" in done.stderr


def test_the_namespace_of_the_settings_goes(kubectl: Kubectl) -> None:
    kubectl("delete", "namespace", NAMESPACE, "--wait=false")

    until(lambda: kubectl.get("psc", "set", NAMESPACE) is None, "the Cluster is gone", 120)


def scraped(kubectl: Kubectl, token: str) -> str:
    return kubectl("exec", "set-0", "--namespace", NAMESPACE, "--", "python3", "-c", SCRAPE, token).strip()
