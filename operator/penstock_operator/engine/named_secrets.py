"""Reads the Secrets that objects name, which are not the operator's own.

The operator watches Secrets by its label alone, and sees no others. A Secret that an object names gets the label, with
an empty value, when it is read first: then its changes are seen at once, and it is not read again. Where the API server
refuses the label, the Secret is read each time.
"""

from typing import Any

from penstock_operator.desired.naming import CLUSTER_LABEL
from penstock_operator.engine.backlog import Key
from penstock_operator.engine.children import REFUSALS
from penstock_operator.engine.world import World
from penstock_operator.links import ApiError

Manifest = dict[str, Any]


def read_named(world: World, namespace: str, name: str) -> Manifest | None:
    """Return the Secret; None when there is none. Raises ApiError."""
    known = world.store.get(Key("Secret", namespace, name))
    if known is not None:
        return known
    found = world.kubernetes.read("v1", "Secret", namespace, name)
    if found is None:
        return None
    secret = {**found, "apiVersion": "v1", "kind": "Secret"}
    if CLUSTER_LABEL not in (secret["metadata"].get("labels") or {}):
        try:
            secret = world.kubernetes.patch(secret, {"metadata": {"labels": {CLUSTER_LABEL: ""}}})
        except ApiError as error:
            if error.code not in REFUSALS:
                raise
            return secret
    world.store.put(secret)
    return secret
