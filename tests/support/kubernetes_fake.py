"""A Kubernetes of dictionaries behind the operator's port.

It has objects, finalizers, resource versions, owner references and a record of writes. It checks no schema and runs no
controllers; tests that need those use a real one.
"""

import copy
from collections.abc import Callable
from typing import Any

from penstock_operator.engine import Key
from penstock_operator.links import ApiError

Manifest = dict[str, Any]


class FakeKubernetes:
    """The methods of `links.Kubernetes`; `on_change` is called for every object that changed or went."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Manifest] = {}
        self.events: list[tuple[str, str, str]] = []
        self.writes: list[tuple[str, str, str]] = []
        self.on_change: Callable[[Manifest, bool], None] = lambda manifest, is_gone: None
        self.kinds_missing: set[str] = set()
        self.kinds_forbidden: set[str] = set()
        self._version = 0

    def add(self, manifest: Manifest) -> Manifest:
        """Add an object as a user does: with an identity, and announced."""
        metadata = manifest["metadata"]
        metadata.setdefault("namespace", "default")
        metadata.setdefault("uid", f"uid-{manifest['kind']}-{metadata['name']}-{self._version}")
        metadata.setdefault("creationTimestamp", f"2026-01-01T00:00:{len(self.objects):02d}Z")
        metadata.setdefault("generation", 1)
        return self._save(manifest)

    def change(self, kind: str, name: str, spec: Manifest, namespace: str = "default") -> Manifest:
        """Change an object as a user does: the generation goes up."""
        manifest = copy.deepcopy(self.objects[kind, namespace, name])
        manifest["spec"] = {**manifest["spec"], **spec}
        manifest["metadata"]["generation"] += 1
        return self._save(manifest)

    def remove(self, kind: str, name: str, namespace: str = "default") -> None:
        """Remove an object as `kubectl delete` does: finalizers delay it."""
        manifest = copy.deepcopy(self.objects[kind, namespace, name])
        if manifest["metadata"].get("finalizers"):
            manifest["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
            self._save(manifest)
        else:
            self._drop((kind, namespace, name))

    def get(self, kind: str, name: str, namespace: str = "default") -> Manifest | None:
        return self.objects.get((kind, namespace, name))

    # ------------------------------------------------------------ the port

    def read(self, api_version: str, kind: str, namespace: str | None, name: str) -> Manifest | None:
        if kind in self.kinds_forbidden:
            raise ApiError(403, f"{kind} is forbidden")
        return copy.deepcopy(self.objects.get((kind, namespace or "", name)))

    def apply(self, manifest: Manifest) -> Manifest:
        if manifest["kind"] in self.kinds_missing:
            raise ApiError(404, "the server could not find the requested resource")
        self.writes.append(("apply", manifest["kind"], manifest["metadata"]["name"]))
        known = self.objects.get(_place(manifest), {"metadata": {"uid": f"uid-{manifest['metadata']['name']}"}})
        return self._save(_merged(known, manifest))

    def create(self, manifest: Manifest) -> Manifest:
        self.writes.append(("create", manifest["kind"], manifest["metadata"]["name"]))
        if _place(manifest) in self.objects:
            raise ApiError(409, "it is there already")
        return self.add(copy.deepcopy(manifest))

    def patch(self, manifest: Manifest, change: Manifest, *, part: str = "") -> Manifest:
        self.writes.append((f"patch {part}".strip(), manifest["kind"], manifest["metadata"]["name"]))
        known = self.objects.get(_place(manifest))
        if known is None:
            raise ApiError(404, "it is not there")
        version = change.get("metadata", {}).get("resourceVersion")
        if version is not None and version != known["metadata"]["resourceVersion"]:
            raise ApiError(409, "it changed meanwhile")
        return self._save(_merged(known, change))

    def delete(self, manifest: Manifest, *, propagation: str = "Background") -> None:
        self.writes.append(("delete", manifest["kind"], manifest["metadata"]["name"]))
        self._drop(_place(manifest))

    def tell(self, about: Manifest, *, is_warning: bool, reason: str, message: str) -> None:
        self.events.append((about["kind"], about["metadata"]["name"], reason))

    # ------------------------------------------------------------ internals

    def _save(self, manifest: Manifest) -> Manifest:
        self._version += 1
        manifest = copy.deepcopy(manifest)
        manifest["metadata"]["resourceVersion"] = str(self._version)
        if "deletionTimestamp" in manifest["metadata"] and not manifest["metadata"].get("finalizers"):
            self._drop(_place(manifest))
            return manifest
        self.objects[_place(manifest)] = manifest
        self.on_change(copy.deepcopy(manifest), False)
        return copy.deepcopy(manifest)

    def _drop(self, place: tuple[str, str, str]) -> None:
        gone = self.objects.pop(place, None)
        if gone is not None:
            self.on_change(gone, True)


def _place(manifest: Manifest) -> tuple[str, str, str]:
    return manifest["kind"], manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"]


def _merged(known: Any, change: Any) -> Any:
    """Apply a merge patch."""
    if not isinstance(known, dict) or not isinstance(change, dict):
        return copy.deepcopy(change)
    found = {key: value for key, value in known.items() if change.get(key, value) is not None}
    for key, value in change.items():
        if value is not None:
            found[key] = _merged(known.get(key), value)
    return found


def key_of(manifest: Manifest) -> Key:
    return Key(*_place(manifest))
