"""Takes changes of Kubernetes into the store, and returns the keys to reconcile.

The watches and the census come here, so that a change that a watch missed has the same effects when it is found later.
Other objects wake at once: those of a Cluster that was unpaused or admits others, those of a namespace whose labels
changed, those that name a Secret, and those that had waited for a deleted one of the same thing.
"""

from typing import Any, Final

from penstock_operator.engine.backlog import Key
from penstock_operator.engine.store import Store

Manifest = dict[str, Any]
# Fields of a Cluster that decide whether it takes its objects.
_ADMITTING: Final = ("paused", "topology")


def seen(store: Store, manifest: Manifest) -> list[Key]:
    """Take a manifest. Our own writes come back and are no news."""
    if store.knows(manifest):
        return []
    metadata = manifest["metadata"]
    before = store.get(Key(manifest["kind"], metadata.get("namespace", ""), metadata["name"]))
    key = store.put(manifest)
    if key.kind == "Namespace":
        is_changed = before is not None and _labels(before) != _labels(manifest)
        return store.of_namespace(key.name) if is_changed else []
    if key.kind == "Secret":
        is_changed = before is None or before.get("data") != manifest.get("data")
        return store.naming(key) if is_changed else []
    if key.kind == "Cluster" and (before is None or _admission(before) != _admission(manifest)):
        return [key, *store.of_broker(key)]
    return [key]


def gone(store: Store, key: Key, uid: str | None = None) -> list[Key]:
    """Drop an object, and return it with those that described the same thing."""
    if key.kind == "Secret":
        store.drop(key, uid)
        return store.naming(key)
    others = [other for other in store.claimants(key) if other != key]
    store.drop(key, uid)
    return [] if key.kind == "Namespace" else [key, *others]


def _labels(manifest: Manifest) -> dict[str, str]:
    labels: dict[str, str] = manifest["metadata"].get("labels") or {}
    return labels


def _admission(manifest: Manifest) -> list[Any]:
    return [manifest.get("spec", {}).get(name) for name in _ADMITTING]
