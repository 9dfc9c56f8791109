"""Finds which objects count among those that describe the same thing on a broker.

The oldest object counts whose namespace the Cluster allows; the others claim nothing.
"""

from typing import Any

from pydantic import ValidationError

from penstock_operator.api import TopologySpec, UserSpec
from penstock_operator.desired import Owner
from penstock_operator.desired.accounts import takes_over
from penstock_operator.desired.conditions import status_of
from penstock_operator.desired.naming import ADMINISTRATOR, FINALIZER, PAUSED_ANNOTATION
from penstock_operator.engine.backlog import Key
from penstock_operator.engine.home import NotYet, admits, may_administer
from penstock_operator.engine.world import World

Manifest = dict[str, Any]


def check_claims(world: World, owner: Owner | None, key: Key) -> None:
    """Raise NotYet when an older object counts."""
    for other in world.store.claimants(key):
        if other == key:
            return
        if admits(world, owner, other.namespace):
            raise NotYet(
                "Conflict",
                f"{other.kind} '{other.name}' in namespace '{other.namespace}' describes the same and is older",
            )


def successors(world: World, owner: Owner | None, key: Key) -> list[Key]:
    """Return the objects that take over the thing of one that is deleted."""
    return [
        other
        for other in world.store.claimants(key)
        if other != key and admits(world, owner, other.namespace) and _takes_over(world, owner, key, other)
    ]


def taker(world: World, owner: Owner) -> Key | None:
    """Return the User that took the operator's own account, when an operator of before let it."""
    for key in sorted(world.store.of_broker(Key("Cluster", owner.namespace, owner.name))):
        manifest = world.store.get(key) if key.kind == "User" else None
        if manifest is None or not _was_made(manifest):
            continue
        try:
            spec = world.store.spec(key)
        except (KeyError, ValidationError):
            continue
        if isinstance(spec, UserSpec) and spec.name == ADMINISTRATOR:
            return key
    return None


def _takes_over(world: World, owner: Owner | None, key: Key, other: Key) -> bool:
    manifest = world.store.get(other)
    if manifest is None or "deletionTimestamp" in manifest["metadata"]:
        return False
    if _holds(manifest, world.store.get(key) or {}):
        return True
    try:
        deleted, spec = world.store.spec(key), world.store.spec(other)
    except (KeyError, ValidationError):
        return False
    assert isinstance(deleted, TopologySpec)
    assert isinstance(spec, TopologySpec)
    is_paused = manifest["metadata"].get("annotations", {}).get(PAUSED_ANNOTATION) == "true"
    may = may_administer(world, owner, other.namespace)
    return takes_over(deleted, spec, is_paused=is_paused, may_administer=may)


def _holds(other: Manifest, deleted: Manifest) -> bool:
    """Return whether another object owns the thing already, so that the deleted one does not.

    A deleted object that was never in order may have a mark that a user wrote. One that was in order is no longer the
    owner if the other one is now.
    """
    if FINALIZER not in (other["metadata"].get("finalizers") or []) or not _was_made(other):
        return False
    conditions = other.get("status", {}).get("conditions", [])
    return not _was_made(deleted) or status_of(conditions, "Ready") == "True"


def _was_made(manifest: Manifest) -> bool:
    return bool((manifest.get("status") or {}).get("lastSyncTime"))
