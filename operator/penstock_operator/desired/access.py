"""The identity of a Cluster's pod and the Secrets to log in with. Passwords come in as arguments: nothing here
makes one, and nothing but a Secret holds one."""

import base64
from typing import Any
from urllib.parse import quote

from penstock_operator.desired.naming import ADMINISTRATOR, GRPC_PORT, Owner

BINDING_TYPE = "penstock"


def service_account(owner: Owner) -> dict[str, Any]:
    """The broker asks Kubernetes nothing, so it gets no token and no role."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": owner.metadata(owner.name),
        "automountServiceAccountToken": False,
    }


def administrator_secret(owner: Owner, password: str, authority: str = "") -> dict[str, Any]:
    """Made once. It stays with the volume: who keeps the messages needs the password that opens them."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": owner.metadata(owner.secret, is_owned=False),
        "type": f"servicebinding.io/{BINDING_TYPE}",
        "data": binding(owner, ADMINISTRATOR, password, authority),
    }


def user_secret(metadata: dict[str, Any], data: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": f"servicebinding.io/{BINDING_TYPE}",
        "data": data,
    }


def binding(owner: Owner, user: str, password: str, authority: str) -> dict[str, str]:
    """The keys of the Service Binding convention, encoded as a Secret's data. `authority` is what to trust, in PEM."""
    host, address = owner.host, f"{owner.host}:{GRPC_PORT}"
    scheme = "penstocks" if owner.spec.tls else "penstock"
    plain = {
        "type": BINDING_TYPE,
        "provider": BINDING_TYPE,
        "host": host,
        "port": str(GRPC_PORT),
        "username": user,
        "password": password,
        "uri": f"{scheme}://{quote(user, safe='')}:{quote(password, safe='')}@{address}/",
        "grpc-address": address,
        **({"ca.crt": authority} if authority else {}),
    }
    return {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
