"""Objects of a Cluster for other operators and drains: Certificate, ServiceMonitor, PodDisruptionBudget."""

from typing import Any

from penstock_operator.desired.naming import Owner
from penstock_operator.desired.network import CLIENT_SERVICE


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
