"""Objects for other operators and drains: Certificate, ServiceMonitor, PrometheusRule, PodDisruptionBudget.

Each belongs to a Cluster. A test checks that the alerts use only metrics that the broker has.
"""

from typing import Any

from penstock_operator.desired.naming import Owner
from penstock_operator.desired.network import CLIENT_SERVICE

RUNBOOK = "docs/kubernetes.md#alerts"


def disruption_budget(owner: Owner) -> dict[str, Any] | None:
    if not owner.spec.pdb.enabled:
        return None
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": owner.metadata(owner.name),
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": owner.selector}},
    }


def service_monitor(owner: Owner) -> dict[str, Any] | None:
    wanted = owner.spec.monitoring.service_monitor
    if not wanted.enabled:
        return None
    metadata = owner.metadata(owner.name)
    metadata["labels"] = {**wanted.labels, **owner.labels}
    endpoint: dict[str, Any] = {"port": "metrics", "path": "/metrics", "interval": wanted.interval}
    token = owner.spec.config.metrics_token
    if token is not None:
        endpoint["authorization"] = {"type": "Bearer", "credentials": token.secret_key_ref.manifest()}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": metadata,
        "spec": {
            "selector": {"matchLabels": {**owner.selector, **CLIENT_SERVICE}},
            "namespaceSelector": {"matchNames": [owner.namespace]},
            "endpoints": [endpoint],
        },
    }


def certificate(owner: Owner) -> dict[str, Any] | None:
    """Return a Certificate for cert-manager with all names of the broker."""
    tls = owner.spec.tls
    if tls is None or tls.cert_manager is None:
        return None
    service = f"{owner.name}.{owner.namespace}.svc"
    nodes = f"*.{owner.headless}.{owner.namespace}.svc"
    names = [owner.name, service, f"{service}.cluster.local", nodes, f"{nodes}.cluster.local"]
    names += [each for each in tls.cert_manager.dns_names if each not in names]
    issuer = {"group": "cert-manager.io", **tls.cert_manager.issuer_ref.manifest()}
    return {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "metadata": owner.metadata(owner.name),
        "spec": {"secretName": tls.secret_name, "dnsNames": names, "usages": ["server auth"], "issuerRef": issuer},
    }


def prometheus_rule(owner: Owner) -> dict[str, Any] | None:
    wanted = owner.spec.monitoring.prometheus_rule
    if not wanted.enabled:
        return None
    metadata = owner.metadata(owner.name)
    metadata["labels"] = {**wanted.labels, **owner.labels}
    group = {"name": f"penstock-{owner.name}", "rules": [_alert(owner, *each) for each in ALERTS]}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": metadata,
        "spec": {"groups": [group]},
    }


# Name, expression ({s}: the selector of this Cluster's series), duration, severity, message.
ALERTS: tuple[tuple[str, str, str, str, str], ...] = (
    ("PenstockDown", "absent(up{{{s}}} == 1)", "2m", "critical", "the broker does not answer"),
    (
        "PenstockDiskFull",
        "penstock_disk_full{{{s}}} == 1",
        "2m",
        "critical",
        "the disk is full: publishers are refused",
    ),
    (
        "PenstockDiskFillsUp",
        "predict_linear(penstock_disk_free_bytes{{{s}}}[6h], 86400) < 0",
        "1h",
        "warning",
        "the disk will be full within a day",
    ),
    (
        "PenstockCorruptRecords",
        "increase(penstock_corrupt_records_total{{{s}}}[10m]) > 0",
        "0m",
        "critical",
        "corrupt records were found: messages were lost",
    ),
    (
        "PenstockQuarantinedSegments",
        "penstock_quarantined_segments{{{s}}} > 0",
        "5m",
        "warning",
        "segments of the log have corrupt records",
    ),
    (
        "PenstockSlowSyncs",
        "rate(penstock_sync_seconds_total{{{s}}}[5m]) / rate(penstock_syncs_total{{{s}}}[5m]) > 0.1",
        "10m",
        "warning",
        "a sync of the disk takes more than 100 ms",
    ),
    (
        "PenstockUnroutable",
        "rate(penstock_messages_returned_total{{{s}}}[5m]) > 0",
        "10m",
        "warning",
        "mandatory messages are returned: no queue matches",
    ),
    (
        "PenstockNoConsumers",
        "sum(penstock_queue_messages_ready{{{s}}}) > 0 and sum(penstock_consumers{{{s}}}) == 0",
        "30m",
        "warning",
        "messages are waiting and there are no consumers",
    ),
)


def _alert(owner: Owner, name: str, expression: str, since: str, severity: str, says: str) -> dict[str, Any]:
    selector = f'namespace="{owner.namespace}",service="{owner.name}"'
    return {
        "alert": name,
        "expr": expression.format(s=selector),
        "for": since,
        "labels": {"severity": severity},
        "annotations": {"summary": f"{owner.namespace}/{owner.name}: {says}", "runbook_url": RUNBOOK},
    }
