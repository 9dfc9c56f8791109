"""Prepares the deletion of a Cluster: its volumes and its administrator's Secret stay, or go with it.

Both share one fate, which is `whenDeleted` as the manifest has it in the end. Either both have an owner reference to
the Cluster, so that Kubernetes deletes them with it, or neither has. The StatefulSet never deletes a claim. Each step
can be interrupted and is done again: the Cluster goes only after the last one.
"""

import re
from typing import Any

from penstock_operator.desired.naming import CLUSTER_LABEL, VOLUME, cluster_reference, is_owned_by, secret_name
from penstock_operator.engine.backlog import Key
from penstock_operator.engine.world import World

Manifest = dict[str, Any]
ORPHAN = "orphan"


def decide_fate(world: World, manifest: Manifest) -> str:
    """Let volumes and Secret stay or go with the Cluster; return what must happen before it may go.

    A pod without an owner is of a StatefulSet that was deleted to grow the volume; nothing else would delete it.
    """
    metadata = manifest["metadata"]
    namespace, name, uid = metadata["namespace"], metadata["name"], metadata["uid"]
    workload = world.kubernetes.read("apps/v1", "StatefulSet", namespace, name)
    is_ours = workload is None or is_owned_by(workload, uid)
    goes = is_ours and _is_to_go(manifest)
    claims = _claims(world, manifest) if is_ours else []
    if workload is not None and is_ours and not goes:
        waits = _let_keep(world, workload, claims)
        if waits:
            return waits
    if workload is None and not _is_kept_whole(manifest):
        _delete_pods(world, manifest)
    for claim in claims:
        _share(world, manifest, claim, goes=goes)
    secret = world.kubernetes.read("v1", "Secret", namespace, secret_name(name))
    if secret is not None:
        _share(world, manifest, {**secret, "apiVersion": "v1", "kind": "Secret"}, goes=goes)
        world.store.drop(Key("Secret", namespace, secret_name(name)))
    return ""


def _is_to_go(manifest: Manifest) -> bool:
    storage = manifest.get("spec", {}).get("storage", {})
    return storage.get("retain", {}).get("whenDeleted") == "Delete" and not _is_kept_whole(manifest)


def _is_kept_whole(manifest: Manifest) -> bool:
    """Return whether all that belongs to the Cluster stays, by `kubectl delete --cascade=orphan`."""
    return ORPHAN in manifest["metadata"].get("finalizers", [])


def _delete_pods(world: World, manifest: Manifest) -> None:
    for pod in _ours(world, manifest, "Pod", ""):
        if not pod["metadata"].get("ownerReferences") and "deletionTimestamp" not in pod["metadata"]:
            world.kubernetes.delete(pod)


def _claims(world: World, manifest: Manifest) -> list[Manifest]:
    if manifest.get("spec", {}).get("storage", {}).get("mode", "pvc") != "pvc":
        return []
    return _ours(world, manifest, "PersistentVolumeClaim", f"{VOLUME}-")


def _ours(world: World, manifest: Manifest, kind: str, prefix: str) -> list[Manifest]:
    """Return the objects that a StatefulSet of this Cluster makes, by their label and their names."""
    metadata = manifest["metadata"]
    found = world.kubernetes.list("v1", kind, metadata["namespace"], f"{CLUSTER_LABEL}={metadata['name']}")
    name = re.compile(rf"{prefix}{re.escape(metadata['name'])}-[0-9]+")
    return [{**each, "apiVersion": "v1", "kind": kind} for each in found if name.fullmatch(each["metadata"]["name"])]


def _let_keep(world: World, workload: Manifest, claims: list[Manifest]) -> str:
    """Take the claims from a StatefulSet that would delete them; return what to wait for.

    An earlier operator wrote `whenDeleted` into the StatefulSet, whose controller then owns the claims.
    """
    policy = workload["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    if policy.get("whenDeleted") == "Delete":
        change = {"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain"}}}
        world.kubernetes.patch({**workload, "apiVersion": "apps/v1", "kind": "StatefulSet"}, change)
        claims = [_read_again(world, claim) for claim in claims]
    held = [claim["metadata"]["name"] for claim in claims if is_owned_by(claim, workload["metadata"]["uid"])]
    if not held:
        return ""
    return f"Kubernetes' StatefulSet controller must release {', '.join(held)}, so that the volume stays"


def _read_again(world: World, claim: Manifest) -> Manifest:
    metadata = claim["metadata"]
    found = world.kubernetes.read("v1", "PersistentVolumeClaim", metadata["namespace"], metadata["name"])
    return claim if found is None else {**claim, **found}


def _share(world: World, manifest: Manifest, thing: Manifest, *, goes: bool) -> None:
    """Give or take the owner reference to the Cluster; a change by others in between is a conflict and retried."""
    metadata = thing["metadata"]
    if is_owned_by(thing, manifest["metadata"]["uid"]) == goes:
        return
    others = [each for each in metadata.get("ownerReferences", []) if each.get("uid") != manifest["metadata"]["uid"]]
    owners = [*others, cluster_reference(manifest["metadata"], is_controller=False)] if goes else others
    change = {"metadata": {"ownerReferences": owners, "resourceVersion": metadata["resourceVersion"]}}
    world.kubernetes.patch(thing, change)
