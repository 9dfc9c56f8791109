"""A Kubernetes of dictionaries behind the operator's port.

It has objects, finalizers, resource versions, generations, server-side apply, garbage collection by owner references,
and a record of writes. Of the controllers it runs those of StatefulSets, as far as the operator waits for them. It
checks no schema; tests that need one use a real API server.
"""

import copy
from collections.abc import Callable
from typing import Any

from penstock_operator.engine import Key
from penstock_operator.links import ApiError
from support.apply_fake import Path, applied, merged

Manifest = dict[str, Any]
Manifests = list[Manifest]
Place = tuple[str, str, str]
NOW = "2026-01-02T00:00:00Z"
ORPHAN = "orphan"


class FakeKubernetes:
    """The methods of `links.Kubernetes`; `on_change` is called for every object that changed or went.

    Invariants: no object without a finalizer has a deletion timestamp; no object is left whose owners are all gone.
    """

    def __init__(self) -> None:
        self.objects: dict[Place, Manifest] = {}
        self.events: list[tuple[str, str, str]] = []
        self.messages: list[str] = []
        """The texts of the events, in the same order."""
        self.writes: list[tuple[str, str, str]] = []
        self.on_change: Callable[[Manifest, bool], None] = lambda manifest, is_gone: None
        self.kinds_missing: set[str] = set()
        self.kinds_without_status: set[str] = set()
        """Kinds whose CRD has no subresource for the status."""
        self.kinds_forbidden: set[str] = set()
        self.namespaces_forbidden: set[str] = set()
        """Namespaces in which the operator has no role: nothing of ours can be listed there."""
        self.kinds_refused: set[str] = set()
        """Kinds whose writes the API server refuses, as a quota or an admission webhook does."""
        self.kinds_lingering: set[str] = set()
        """Kinds whose objects stay terminating when they are deleted, until `finish`."""
        self.is_away = False
        """Whether the API server does not answer."""
        self.has_controllers = True
        """Whether the StatefulSet controller runs: it observes generations and owns claims by their policy."""
        self._owned: dict[Place, set[Path]] = {}
        self.lists: list[str] = []
        self.reads: list[tuple[str, str]] = []
        self._version = 0

    # ------------------------------------------------------------ what others do

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

    def edit(self, kind: str, name: str, change: Manifest, namespace: str = "default") -> Manifest:
        """Merge a change into an object as another manager does; None removes a field."""
        return self._save(merged(self.objects[kind, namespace, name], change))

    def remove(self, kind: str, name: str, namespace: str = "default") -> None:
        """Remove an object as `kubectl delete` does: finalizers delay it, and what it owned follows it."""
        self._terminate((kind, namespace, name))

    def finish(self, kind: str, name: str, namespace: str = "default") -> None:
        """Let a lingering object go."""
        self._drop((kind, namespace, name))

    def get(self, kind: str, name: str, namespace: str = "default") -> Manifest | None:
        return self.objects.get((kind, namespace, name))

    # ------------------------------------------------------------ the port

    def read(self, api_version: str, kind: str, namespace: str | None, name: str) -> Manifest | None:
        self._answer()
        self.reads.append((kind, name))
        if kind in self.kinds_forbidden:
            raise ApiError(403, f"{kind} is forbidden")
        return copy.deepcopy(self.objects.get((kind, namespace or "", name)))

    def list(self, api_version: str, kind: str, namespace: str | None, selector: str = "") -> Manifests:
        self._answer()
        self.lists.append(kind)
        if kind in self.kinds_forbidden:
            raise ApiError(403, f"{kind} is forbidden")
        if namespace in self.namespaces_forbidden:
            raise ApiError(403, f"{kind} is forbidden in namespace {namespace}")
        if kind in self.kinds_missing:
            raise ApiError(404, "the server could not find the requested resource")
        wanted = [each.partition("=") for each in selector.split(",") if each]
        return [
            copy.deepcopy(manifest)
            for (each, where, _), manifest in self.objects.items()
            if each == kind
            and namespace in {None, where}
            and all(_has_label(manifest, name, value if equals else None) for name, equals, value in wanted)
        ]

    def apply(self, manifest: Manifest) -> Manifest:
        self._answer()
        if manifest["kind"] in self.kinds_missing:
            raise ApiError(404, "the server could not find the requested resource")
        self._admit(manifest["kind"])
        self.writes.append(("apply", manifest["kind"], manifest["metadata"]["name"]))
        place = _place(manifest)
        known = self.objects.get(place)
        if known is None:
            uid = f"uid-{manifest['kind']}-{manifest['metadata']['name']}-{self._version}"
            known = {"metadata": {"uid": uid, "generation": 0}}
            self._owned.pop(place, None)
        found, self._owned[place] = applied(known, manifest, self._owned.get(place, set()))
        if found.get("spec") != known.get("spec"):
            found["metadata"]["generation"] = known["metadata"].get("generation", 0) + 1
        return self._save(found)

    def create(self, manifest: Manifest) -> Manifest:
        self._answer()
        self._admit(manifest["kind"])
        self.writes.append(("create", manifest["kind"], manifest["metadata"]["name"]))
        if _place(manifest) in self.objects:
            raise ApiError(409, "it is there already")
        return self.add(copy.deepcopy(manifest))

    def patch(self, manifest: Manifest, change: Manifest, *, part: str = "") -> Manifest:
        self._answer()
        self._admit(manifest["kind"])
        self.writes.append((f"patch {part}".strip(), manifest["kind"], manifest["metadata"]["name"]))
        known = self.objects.get(_place(manifest))
        if known is None:
            raise ApiError(404, "it is not there")
        if part == "status" and manifest["kind"] in self.kinds_without_status:
            raise ApiError(404, "the server could not find the requested resource")
        version = change.get("metadata", {}).get("resourceVersion")
        if version is not None and version != known["metadata"]["resourceVersion"]:
            raise ApiError(409, "it changed meanwhile")
        found = merged(known, change)
        if not part and found.get("spec") != known.get("spec"):
            found["metadata"]["generation"] = known["metadata"].get("generation", 0) + 1
        return self._save(found)

    def delete(self, manifest: Manifest, *, propagation: str = "Background") -> None:
        self._answer()
        self.writes.append(("delete", manifest["kind"], manifest["metadata"]["name"]))
        known = self.objects.get(_place(manifest))
        if known is None or manifest["metadata"].get("uid", known["metadata"]["uid"]) != known["metadata"]["uid"]:
            return
        self._terminate(_place(manifest), is_orphaning=propagation == "Orphan")

    def tell(self, about: Manifest, *, is_warning: bool, reason: str, message: str) -> None:
        self.events.append((about["kind"], about["metadata"]["name"], reason))
        self.messages.append(message)

    # ------------------------------------------------------------ internals

    def _answer(self) -> None:
        if self.is_away:
            raise ApiError(0, "the API server does not answer")

    def _admit(self, kind: str) -> None:
        if kind in self.kinds_refused:
            raise ApiError(403, "exceeded quota")

    def _save(self, manifest: Manifest) -> Manifest:
        self._version += 1
        manifest = copy.deepcopy(manifest)
        manifest["metadata"]["resourceVersion"] = str(self._version)
        if "deletionTimestamp" in manifest["metadata"] and not manifest["metadata"].get("finalizers"):
            self._drop(_place(manifest))
            return manifest
        self.objects[_place(manifest)] = manifest
        if manifest["kind"] == "StatefulSet" and self.has_controllers:
            self.run_controller(manifest)
        self.on_change(copy.deepcopy(manifest), False)
        return copy.deepcopy(manifest)

    def run_controller(self, workload: Manifest) -> None:
        """Do for a StatefulSet what its controller does: observe it, and own its claims if its policy says Delete."""
        metadata = workload["metadata"]
        workload.setdefault("status", {})["observedGeneration"] = metadata.get("generation", 1)
        policy = workload.get("spec", {}).get("persistentVolumeClaimRetentionPolicy", {}).get("whenDeleted", "Retain")
        for claim in self.objects.values():
            is_its = claim["kind"] == "PersistentVolumeClaim" and claim["metadata"]["name"].startswith(
                f"data-{metadata['name']}-"
            )
            if is_its and claim["metadata"]["namespace"] == metadata["namespace"]:
                owners = [each for each in _owners(claim) if each.get("kind") != "StatefulSet"]
                if policy == "Delete":
                    owners.append({"kind": "StatefulSet", "name": metadata["name"], "uid": metadata.get("uid")})
                claim["metadata"]["ownerReferences"] = owners

    def _terminate(self, place: Place, *, is_orphaning: bool = False) -> None:
        manifest = copy.deepcopy(self.objects[place])
        metadata = manifest["metadata"]
        if is_orphaning:
            for dependent in self._dependents(metadata.get("uid")):
                kept = [each for each in _owners(dependent) if each.get("uid") != metadata.get("uid")]
                dependent["metadata"]["ownerReferences"] = kept
        if place[0] in self.kinds_lingering:
            metadata["finalizers"] = [*metadata.get("finalizers", []), ORPHAN]
        if metadata.get("finalizers"):
            metadata.setdefault("deletionTimestamp", NOW)
            self._save(manifest)
        else:
            self._drop(place)

    def _drop(self, place: Place) -> None:
        gone = self.objects.pop(place, None)
        self._owned.pop(place, None)
        if gone is None:
            return
        self.on_change(gone, True)
        for dependent in self._dependents(gone["metadata"].get("uid")):
            uids = {each["metadata"].get("uid") for each in self.objects.values()}
            if not any(each.get("uid") in uids for each in _owners(dependent)):
                self._terminate(_place(dependent))

    def _dependents(self, uid: str | None) -> Manifests:
        return [each for each in list(self.objects.values()) if any(owner.get("uid") == uid for owner in _owners(each))]


def _has_label(manifest: Manifest, name: str, value: str | None) -> bool:
    """Return whether an object has a label; with None any value counts."""
    labels = manifest["metadata"].get("labels") or {}
    return name in labels and value in {None, labels[name]}


def _owners(manifest: Manifest) -> Manifests:
    found: Manifests = manifest["metadata"].get("ownerReferences", [])
    return found


def _place(manifest: Manifest) -> Place:
    return manifest["kind"], manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"]


def key_of(manifest: Manifest) -> Key:
    return Key(*_place(manifest))
