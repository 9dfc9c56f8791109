"""Alerts of a Cluster as a PrometheusRule, with the section of docs/failures.md for each.

A test checks that the alerts use only metrics that the broker has. Alerts about the operator are in its chart.
"""

from typing import Any, Final, TypeAlias

from penstock_operator.desired.naming import Owner

RUNBOOK: Final = "docs/failures.md"
DOWN: Final = "PenstockDown"
Alert: TypeAlias = tuple[str, str, str, str, str]


def prometheus_rule(owner: Owner) -> dict[str, Any] | None:
    wanted = owner.spec.monitoring.prometheus_rule
    if not wanted.enabled:
        return None
    metadata = owner.metadata(owner.name)
    metadata["labels"] = {**wanted.labels, **owner.labels}
    group = {"name": f"penstock-{owner.name}", "rules": [_alert(owner, *each) for each in _wanted(owner)]}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": metadata,
        "spec": {"groups": [group]},
    }


def _wanted(owner: Owner) -> list[Alert]:
    """Return the alerts. A Cluster that is stopped on purpose has none that says it is down."""
    return [each for each in ALERTS if owner.spec.replicas or each[0] != DOWN]


# Name, expression ({s}: the selector of this Cluster's series), duration, severity, message.
ALERTS: Final[tuple[Alert, ...]] = (
    (DOWN, "absent(up{{{s}}} == 1)", "2m", "critical", "the broker does not answer"),
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
        "PenstockBuffersFull",
        "increase(penstock_connections_closed_for_buffers_total{{{s}}}[10m]) > 0",
        "0m",
        "warning",
        "clients hold the memory that others wait for: connections were closed",
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
    (
        "PenstockCertificateExpires",
        "penstock_certificate_not_after_timestamp_seconds{{{s}}} - time() < 7 * 86400",
        "1h",
        "warning",
        "the certificate that clients see expires within a week",
    ),
)


def _alert(owner: Owner, name: str, expression: str, since: str, severity: str, says: str) -> dict[str, Any]:
    selector = f'namespace="{owner.namespace}",service="{owner.name}"'
    annotations = {"summary": f"{owner.namespace}/{owner.name}: {says}", "runbook": f"{RUNBOOK}#{anchor(name)}"}
    page = owner.spec.monitoring.prometheus_rule.runbook_url
    if page:
        annotations["runbook_url"] = f"{page}#{anchor(name)}"
    return {
        "alert": name,
        "expr": expression.format(s=selector),
        "for": since,
        "labels": {"severity": severity},
        "annotations": annotations,
    }


def anchor(alert: str) -> str:
    """Return the anchor of an alert's section, as GitHub and others make it of the heading."""
    return alert.lower()
