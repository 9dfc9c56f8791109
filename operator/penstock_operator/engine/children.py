"""Applies a Cluster's children: makes the missing ones, corrects those that differ, deletes the unwanted.

A child is a Cluster's by its owner reference. One without an owner is taken if its label names the Cluster; any other
is left alone. A refusal of one child does not stop the others, except that no pod runs with another owner's service
account or configuration.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from penstock_operator.desired import Owner, Plan, children
from penstock_operator.desired.children import OPTIONAL
from penstock_operator.desired.compare import RESTORED, drift, removal
from penstock_operator.desired.naming import CLUSTER_LABEL, is_owned_by
from penstock_operator.engine.world import World
from penstock_operator.links import ApiError

Manifest = dict[str, Any]
NOT_FOUND: Final = 404
FORBIDDEN: Final = 403
# Answers that a retry alone does not change.
REFUSALS: Final = frozenset({400, 403, 409, 422})


# Kinds that the pod runs with: of another owner, they would be its rights and its settings.
OF_THE_POD: Final = frozenset({"ServiceAccount", "ConfigMap"})


class ForeignError(ApiError):
    """A child of this name belongs to another owner."""


@dataclass(slots=True)
class Applied:
    """The outcome: kinds that this Kubernetes lacks, children that it refused, those that are still terminating.

    Of the refused ones, `foreign` are there and are another owner's, by kind and name.
    """

    missing: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    foreign: set[tuple[str, str]] = field(default_factory=set)
    terminating: list[str] = field(default_factory=list)


def apply_children(world: World, manifest: Manifest, owner: Owner, plan: Plan) -> Applied:
    """Apply all children of a Cluster, and delete those that its manifest no longer wants."""
    found = Applied()
    wanted = children(owner, plan)
    for each in wanted:
        if each["kind"] == "StatefulSet" and OF_THE_POD & {kind for kind, _ in found.foreign}:
            continue
        name = f"{each['kind']} '{each['metadata']['name']}'"
        try:
            if not _apply(world, manifest, each):
                found.terminating.append(name)
        except ForeignError as error:
            found.foreign.add((each["kind"], each["metadata"]["name"]))
            found.refused[name] = str(error)
        except ApiError as error:
            if error.code == NOT_FOUND and (each["apiVersion"], each["kind"]) in OPTIONAL:
                found.missing.append(each["kind"])
            elif error.code in REFUSALS:
                found.refused[name] = str(error)
            else:
                raise
    _remove_unwanted(world, owner, {each["kind"] for each in wanted})
    return found


def _apply(world: World, manifest: Manifest, wanted: Manifest) -> bool:
    """Apply a child; return False when the old one is still terminating, and the new one must wait."""
    metadata, kubernetes = wanted["metadata"], world.kubernetes
    there = kubernetes.read(wanted["apiVersion"], wanted["kind"], metadata["namespace"], metadata["name"])
    if there is None:
        kubernetes.apply(wanted)
        return True
    if not _is_ours(there, metadata):
        raise ForeignError(409, "there is one already that is not this Cluster's; delete it, or rename the Cluster")
    if "deletionTimestamp" in there["metadata"]:
        return False
    differing = drift(wanted, there)
    if not differing:
        return True
    left = removal(wanted, kubernetes.apply(wanted))
    if left:
        kubernetes.patch(wanted, left)
    generation, repaired = manifest["metadata"].get("generation"), [each for each in differing if each != RESTORED]
    if repaired and manifest.get("status", {}).get("observedGeneration") == generation:
        message = f"{wanted['kind']} {metadata['name']} differed and was put right: {', '.join(repaired[:5])}"
        kubernetes.tell(manifest, is_warning=True, reason="DriftRepaired", message=message)
    return True


def _is_ours(there: Manifest, metadata: Manifest) -> bool:
    (owner,) = metadata["ownerReferences"]
    if is_owned_by(there, owner["uid"]):
        return True
    is_controlled = any(each.get("controller") for each in there["metadata"].get("ownerReferences") or [])
    label = there["metadata"].get("labels", {}).get(CLUSTER_LABEL)
    return not is_controlled and bool(label == metadata["labels"][CLUSTER_LABEL])


def _remove_unwanted(world: World, owner: Owner, wanted: set[str]) -> None:
    for api_version, kind in OPTIONAL:
        if kind not in wanted:
            there = _seen(world, api_version, kind, owner)
            if there is not None and is_owned_by(there, owner.uid) and "deletionTimestamp" not in there["metadata"]:
                world.kubernetes.delete({**there, "apiVersion": api_version, "kind": kind})


def _seen(world: World, api_version: str, kind: str, owner: Owner) -> Manifest | None:
    """Return a child; a kind that an older chart grants no access to was never made by this operator."""
    try:
        return world.kubernetes.read(api_version, kind, owner.namespace, owner.name)
    except ApiError as error:
        if error.code == FORBIDDEN:
            return None
        raise
