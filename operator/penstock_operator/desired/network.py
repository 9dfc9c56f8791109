"""The Services of a Cluster and who may reach its pod."""

from typing import Any

from penstock_operator.desired.naming import FIELD_MANAGER, GRPC_PORT, METRICS_PORT, Owner

# Told apart from the headless one, so that figures are scraped once.
CLIENT_SERVICE = {"penstock.dev/service": "clients"}


def client_service(owner: Owner) -> dict[str, Any]:
    """What clients use: only a broker that is ready."""
    wanted = owner.spec.service
    metadata = owner.metadata(owner.name, labels={**owner.labels, **CLIENT_SERVICE})
    if wanted.annotations:
        metadata["annotations"] = wanted.annotations
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"type": wanted.type, "selector": owner.selector, "ports": [_grpc(), _metrics()]},
    }


def headless_service(owner: Owner) -> dict[str, Any]:
    """A name for each pod, ready or not."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owner.metadata(owner.headless),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": owner.selector,
            "ports": [_grpc(), _metrics()],
        },
    }


def _grpc() -> dict[str, Any]:
    # Its own word for plain HTTP/2, which service meshes and load balancers read.
    return {
        "name": "grpc",
        "port": GRPC_PORT,
        "targetPort": "grpc",
        "protocol": "TCP",
        "appProtocol": "kubernetes.io/h2c",
    }


def _metrics() -> dict[str, Any]:
    return {"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics", "protocol": "TCP"}


def network_policy(owner: Owner) -> dict[str, Any] | None:
    """Clients to gRPC, everybody to figures, the operator to both: it must look after the broker from anywhere."""
    wanted = owner.spec.network_policy
    if not wanted.enabled:
        return None
    clients: list[dict[str, Any]] = wanted.allowed_clients or [{"podSelector": {}}]
    operator = {
        "namespaceSelector": {},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": FIELD_MANAGER}},
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": owner.metadata(owner.name),
        "spec": {
            "podSelector": {"matchLabels": owner.selector},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [*clients, operator], "ports": [{"port": GRPC_PORT, "protocol": "TCP"}]},
                {"ports": [{"port": METRICS_PORT, "protocol": "TCP"}]},
            ],
        },
    }
