"""The Services of a Cluster and its network policy."""

from typing import Any

from penstock_operator.desired.naming import BACKUP_OF_LABEL, FIELD_MANAGER, GRPC_PORT, METRICS_PORT, Owner

# Distinguishes it from the headless one, so that metrics are scraped once.
CLIENT_SERVICE = {"penstock.dev/service": "clients"}


def client_service(owner: Owner) -> dict[str, Any]:
    """Return the Service for clients, with ready brokers only."""
    wanted = owner.spec.service
    metadata = owner.metadata(owner.name, labels={**owner.labels, **CLIENT_SERVICE})
    if wanted.annotations:
        metadata["annotations"] = wanted.annotations
    spec: dict[str, Any] = {"type": wanted.type, "selector": owner.selector, "ports": _ports(owner)}
    if wanted.load_balancer_class is not None:
        spec["loadBalancerClass"] = wanted.load_balancer_class
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def headless_service(owner: Owner) -> dict[str, Any]:
    """Return the Service that names each pod, ready or not."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owner.metadata(owner.headless),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": owner.selector,
            "ports": _ports(owner),
        },
    }


def _ports(owner: Owner) -> list[dict[str, Any]]:
    return [_grpc(), *([_amqp(*owner.amqp_port)] if owner.amqp_port else []), _metrics()]


def _amqp(name: str, port: int) -> dict[str, Any]:
    return {"name": name, "port": port, "targetPort": name, "protocol": "TCP"}


def _grpc() -> dict[str, Any]:
    # The protocol name for plain HTTP/2, which service meshes and load balancers read.
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
    """Return the policy: clients may reach gRPC and AMQP, the operator and backups gRPC, all pods metrics."""
    wanted = owner.spec.network_policy
    if not wanted.enabled:
        return None
    clients: list[dict[str, Any]] = wanted.allowed_clients or [{"podSelector": {}}]
    # The label alone could be any pod's. Kubernetes gives each namespace a label with its name.
    namespace = {"kubernetes.io/metadata.name": owner.operator_namespace} if owner.operator_namespace else {}
    operator = {
        "namespaceSelector": {"matchLabels": namespace} if namespace else {},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": FIELD_MANAGER}},
    }
    backups = {"podSelector": {"matchLabels": {BACKUP_OF_LABEL: owner.name}}}
    amqp = {"from": clients, "ports": [{"port": owner.amqp_port[1], "protocol": "TCP"}]} if owner.amqp_port else None
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": owner.metadata(owner.name),
        "spec": {
            "podSelector": {"matchLabels": owner.selector},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [*clients, backups, operator], "ports": [{"port": GRPC_PORT, "protocol": "TCP"}]},
                *([amqp] if amqp else []),
                {"ports": [{"port": METRICS_PORT, "protocol": "TCP"}]},
            ],
        },
    }
