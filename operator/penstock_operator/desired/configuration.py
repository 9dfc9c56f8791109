"""The broker's configuration file, from a Cluster's spec.

The pod has a hash of the settings that need a restart, so a change of them restarts the broker once. Settings that the
broker reloads restart nothing.
"""

import hashlib
import json
from typing import Any

from penstock_operator.api.broker_config import HOT
from penstock_operator.desired.cluster_plan import Plan
from penstock_operator.desired.naming import ADMINISTRATOR, GRPC_PORT, METRICS_PORT, Owner

Settings = dict[str, str | int | float | bool]
FILE = "penstock.toml"
TLS_FOLDER = "/etc/penstock-tls"
ADMINISTRATOR_FOLDER = "/etc/penstock-administrator"
CLIENTS_FOLDER = "/etc/penstock-clients"


def toml(owner: Owner, plan: Plan) -> str:
    """Return the file: keys in the order of the types. Secrets are not in it."""
    return _written(_settings(owner, plan))


def _settings(owner: Owner, plan: Plan) -> Settings:
    settings: Settings = {
        "data_dir": "/data",
        "grpc": f"0.0.0.0:{GRPC_PORT}",
        "metrics": f"0.0.0.0:{METRICS_PORT}",
        "amqp": f"0.0.0.0:{owner.amqp_port[1]}" if owner.amqp_port else "off",
        "http": "off",
        "log_format": "json",
        **owner.spec.config.plain(),
    }
    if plan.has_password_file:
        settings |= {"default_user": ADMINISTRATOR, "default_password_file": f"{ADMINISTRATOR_FOLDER}/password"}
    if owner.spec.tls is not None:
        settings |= {
            "tls_certificate": f"{TLS_FOLDER}/tls.crt",
            "tls_key": f"{TLS_FOLDER}/tls.key",
            "tls_version_min": owner.spec.tls.version_min,
            # Probes and Prometheus read health and metrics, which have no secrets.
            "metrics_tls": False,
        }
        clients = owner.spec.tls.client_certificates
        if clients is not None:
            settings |= {
                "tls_client_ca": f"{CLIENTS_FOLDER}/ca.crt",
                "tls_client_auth": clients.auth,
                "tls_client_user": clients.user,
            }
    return settings


def _written(settings: Settings) -> str:
    return "".join(f"{key} = {_value(value)}\n" for key, value in settings.items())


def _value(value: str | float | bool) -> str:
    """Return a value of TOML: its strings have JSON's escapes, as the types refuse control characters."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return str(int(value)) if value == int(value) else repr(value)


def secret_environment(owner: Owner) -> list[dict[str, Any]]:
    """Return variables for the settings that Secrets have: they never get into the ConfigMap."""
    return [
        {"name": f"PENSTOCK_{key.upper()}", "valueFrom": {"secretKeyRef": place.manifest()}}
        for key, place in owner.spec.config.secret().items()
    ]


def config_hash(owner: Owner, plan: Plan) -> str:
    cold = {key: value for key, value in _settings(owner, plan).items() if key not in HOT}
    return hashlib.sha256(_written(cold).encode()).hexdigest()[:16]


def config_map(owner: Owner, plan: Plan) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": owner.metadata(owner.config_map),
        "data": {FILE: toml(owner, plan)},
    }
