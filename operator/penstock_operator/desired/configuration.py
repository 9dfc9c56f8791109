"""The broker's configuration file, from a Cluster's spec. What only counts after a restart is all of it, in this
version of the broker: its hash stands on the pod, so that a change restarts the broker once."""

import hashlib
from typing import Any

from penstock_operator.desired.naming import GRPC_PORT, METRICS_PORT, Owner

FILE = "penstock.toml"
TLS_FOLDER = "/etc/penstock-tls"


def toml(owner: Owner) -> str:
    """Keys in the order of the types; strings and numbers only."""
    settings: dict[str, str | int | bool] = {
        "data_dir": "/data",
        "grpc": f"0.0.0.0:{GRPC_PORT}",
        "metrics": f"0.0.0.0:{METRICS_PORT}",
        "amqp": "off",
        "http": "off",
        "log_format": "json",
        **owner.spec.config.model_dump(exclude_none=True),
    }
    if owner.spec.tls is not None:
        settings |= {
            "tls_certificate": f"{TLS_FOLDER}/tls.crt",
            "tls_key": f"{TLS_FOLDER}/tls.key",
            "tls_version_min": owner.spec.tls.version_min,
            # Probes and Prometheus ask for health and figures, which tell no secrets.
            "metrics_tls": False,
        }
    return "".join(f"{key} = {_value(value)}\n" for key, value in settings.items())


def _value(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def config_hash(owner: Owner) -> str:
    return hashlib.sha256(toml(owner).encode()).hexdigest()[:16]


def config_map(owner: Owner) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": owner.metadata(owner.config_map),
        "data": {FILE: toml(owner)},
    }
