"""The identity of a Cluster's pod and the Secrets to log in with.

Passwords are arguments: this module makes none, and only Secrets hold them.
"""

import base64
from typing import Any
from urllib.parse import quote

from penstock_operator.desired.naming import ADMINISTRATOR, Endpoint, Owner

BINDING_TYPE = "penstock"


def service_account(owner: Owner) -> dict[str, Any]:
    """Return the service account: the broker does not use Kubernetes, so it gets no token and no role."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": owner.metadata(owner.name),
        "automountServiceAccountToken": False,
    }


def administrator_secret(owner: Owner, password: str, authority: str = "") -> dict[str, Any]:
    """Return the administrator's Secret, made once. It stays with the volume, whose messages need this password."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": owner.metadata(owner.secret, is_owned=False),
        "type": f"servicebinding.io/{BINDING_TYPE}",
        "data": binding(owner.endpoint, ADMINISTRATOR, password, authority),
    }


def user_secret(metadata: dict[str, Any], data: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": f"servicebinding.io/{BINDING_TYPE}",
        "data": data,
    }


def binding(endpoint: Endpoint, user: str, password: str, authority: str) -> dict[str, str]:
    """Return a Secret's data by the Service Binding convention. `authority` is the CA to trust, in PEM."""
    address = endpoint.address
    scheme = "penstocks" if endpoint.has_tls else "penstock"
    plain = {
        "type": BINDING_TYPE,
        "provider": BINDING_TYPE,
        "host": endpoint.host,
        "port": str(endpoint.port),
        "username": user,
        "password": password,
        "uri": f"{scheme}://{quote(user, safe='')}:{quote(password, safe='')}@{address}/",
        "grpc-address": address,
        **({"ca.crt": authority} if authority else {}),
    }
    return {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
