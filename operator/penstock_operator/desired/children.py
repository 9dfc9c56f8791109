"""All objects of a Cluster in Kubernetes, in the order of application: the pod comes after its dependencies.

The Secret is not among them, as it is made once and never repaired.
"""

from typing import Any

from penstock_operator.desired.access import service_account
from penstock_operator.desired.alerts import prometheus_rule
from penstock_operator.desired.cluster_plan import Plan
from penstock_operator.desired.configuration import config_map
from penstock_operator.desired.naming import Owner
from penstock_operator.desired.network import client_service, headless_service, network_policy
from penstock_operator.desired.override import overridden_service, overridden_set
from penstock_operator.desired.watching import certificate, disruption_budget, service_monitor
from penstock_operator.desired.workload import stateful_set

# Children that a spec may leave out: they are deleted when they exist and are not wanted.
OPTIONAL = (
    ("policy/v1", "PodDisruptionBudget"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("monitoring.coreos.com/v1", "ServiceMonitor"),
    ("monitoring.coreos.com/v1", "PrometheusRule"),
    ("cert-manager.io/v1", "Certificate"),
)


def children(owner: Owner, plan: Plan) -> list[dict[str, Any]]:
    """Return manifests for server-side apply."""
    wanted = (
        service_account(owner),
        config_map(owner, plan),
        overridden_service(owner, headless_service(owner)),
        overridden_service(owner, client_service(owner)),
        disruption_budget(owner),
        network_policy(owner),
        service_monitor(owner),
        prometheus_rule(owner),
        certificate(owner),
        overridden_set(owner, stateful_set(owner, plan)),
    )
    return [each for each in wanted if each is not None]
