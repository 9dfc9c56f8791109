"""Grows a Cluster's volume.

A StatefulSet's claim templates cannot change: the claim is patched, and the StatefulSet is deleted without its pod and
made again with the new size. Each step can be interrupted and is resumed.
"""

from typing import Any

from penstock_operator.desired import Owner
from penstock_operator.desired.compare import quantity
from penstock_operator.desired.naming import is_owned_by
from penstock_operator.engine.world import World

Manifest = dict[str, Any]


def grow(world: World, owner: Owner) -> tuple[str, tuple[str, str] | None]:
    """Grow the volume; return the size to use, and reason and message when it cannot grow."""
    wanted = owner.spec.storage.size
    if owner.spec.storage.mode != "pvc":
        return wanted, None
    kubernetes = world.kubernetes
    workload = kubernetes.read("apps/v1", "StatefulSet", owner.namespace, owner.name)
    if workload is not None and not is_owned_by(workload, owner.uid):
        return wanted, None  # the claims belong to whatever made that StatefulSet
    claim = kubernetes.read("v1", "PersistentVolumeClaim", owner.namespace, owner.claim)
    if claim is not None and _is_smaller(claim["spec"]["resources"]["requests"]["storage"], owner):
        refusal = _cannot_grow(world, claim)
        if refusal is not None:
            return claim["spec"]["resources"]["requests"]["storage"], refusal
        change = {"spec": {"resources": {"requests": {"storage": owner.spec.storage.size}}}}
        kubernetes.patch({**claim, "apiVersion": "v1", "kind": "PersistentVolumeClaim"}, change)
    if workload is not None and _template_differs(workload, owner):
        kubernetes.delete({**workload, "apiVersion": "apps/v1", "kind": "StatefulSet"}, propagation="Orphan")
    return wanted, None


def _is_smaller(size: str, owner: Owner) -> bool:
    found, wanted = quantity(size), quantity(owner.spec.storage.size)
    return found is not None and wanted is not None and found < wanted


def _template_differs(workload: Manifest, owner: Owner) -> bool:
    for template in workload["spec"].get("volumeClaimTemplates", []):
        return quantity(template["spec"]["resources"]["requests"]["storage"]) != quantity(owner.spec.storage.size)
    return False


def _cannot_grow(world: World, claim: Manifest) -> tuple[str, str] | None:
    name = claim["spec"].get("storageClassName")
    if not name:
        return "ExpansionUnsupported", "the volume has no storage class, so that it cannot grow; put the old size back"
    found = world.kubernetes.read("storage.k8s.io/v1", "StorageClass", None, name)
    if found is None or not found.get("allowVolumeExpansion"):
        return (
            "ExpansionUnsupported",
            f"the storage class '{name}' does not let volumes grow; move the messages to another Cluster",
        )
    return None
