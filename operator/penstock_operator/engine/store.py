"""Cache of the watched objects: the last manifest of each, indexed by Cluster and by thing on a broker.

The watches and our own writes update it, and the workers read it. An older manifest never replaces a newer one.
"""

from threading import RLock
from typing import Any

from pydantic import ValidationError

from penstock_operator.api import KINDS, GrantSpec, TopologySpec
from penstock_operator.desired.topology import SAME_THING, identity
from penstock_operator.engine.backlog import Key

Manifest = dict[str, Any]
ClusterName = tuple[str, str]
Claim = tuple[str, ClusterName, tuple[str, ...]]


class Store:
    """Thread-safe. Manifests are shared and must not be changed."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._objects: dict[Key, Manifest] = {}
        self._of_cluster: dict[ClusterName, set[Key]] = {}
        self._claims: dict[Claim, set[Key]] = {}
        self._links: dict[Key, tuple[ClusterName | None, Claim | None]] = {}

    def put(self, manifest: Manifest) -> Key:
        metadata = manifest["metadata"]
        key = Key(manifest["kind"], metadata.get("namespace", ""), metadata["name"])
        with self._lock:
            known = self._objects.get(key)
            if known is not None and _is_newer(known, manifest):
                return key
            self._unlink(key)
            self._objects[key] = _trimmed(manifest)
            self._link(key, manifest)
        return key

    def knows(self, manifest: Manifest) -> bool:
        """Return whether exactly this revision is cached: our own writes come back by the watch and are no news."""
        metadata = manifest["metadata"]
        with self._lock:
            known = self._objects.get(Key(manifest["kind"], metadata.get("namespace", ""), metadata["name"]))
            if known is None or known["metadata"].get("uid") != metadata.get("uid"):
                return False
            return bool(known["metadata"].get("resourceVersion") == metadata.get("resourceVersion"))

    def drop(self, key: Key, uid: str | None = None) -> None:
        """Drop an object. With a uid only the one that had it: a new object of the same name stays."""
        with self._lock:
            known = self._objects.get(key)
            if known is None or (uid is not None and known["metadata"].get("uid") != uid):
                return
            self._unlink(key)
            del self._objects[key]

    def get(self, key: Key) -> Manifest | None:
        with self._lock:
            return self._objects.get(key)

    def of_kind(self, kind: str) -> list[Key]:
        with self._lock:
            return [key for key in self._objects if key.kind == kind]

    def of_cluster(self, cluster: ClusterName) -> list[Key]:
        """Return the topology objects of a Cluster."""
        with self._lock:
            return list(self._of_cluster.get(cluster, ()))

    def all(self) -> list[Key]:
        with self._lock:
            return list(self._objects)

    def claimants(self, key: Key) -> list[Key]:
        """Return the objects that describe the same thing on the same broker, oldest first; deleted ones come last."""
        with self._lock:
            claim = self._links.get(key, (None, None))[1]
            keys = list(self._claims.get(claim, ())) if claim is not None else [key]
            return sorted(keys, key=lambda each: _seniority(self._objects[each]))

    def _link(self, key: Key, manifest: Manifest) -> None:
        if key.kind not in KINDS or not KINDS[key.kind].is_topology:
            return
        cluster = cluster_of(manifest)
        claim: Claim | None = None
        try:
            spec = KINDS[key.kind].spec.model_validate(manifest.get("spec", {}))
            assert isinstance(spec, TopologySpec)
            what = identity(spec)
            # A User object is known only in its namespace.
            is_in_namespace = isinstance(spec, GrantSpec) and spec.user_ref is not None
            scope = (key.namespace, *what) if is_in_namespace else what
            claim = (SAME_THING.get(key.kind, key.kind), cluster, scope)
            self._claims.setdefault(claim, set()).add(key)
        except ValidationError:
            claim = None  # an invalid object claims nothing
        self._of_cluster.setdefault(cluster, set()).add(key)
        self._links[key] = (cluster, claim)

    def _unlink(self, key: Key) -> None:
        cluster, claim = self._links.pop(key, (None, None))
        if cluster is not None:
            self._of_cluster[cluster].discard(key)
            if not self._of_cluster[cluster]:
                del self._of_cluster[cluster]
        if claim is not None:
            self._claims[claim].discard(key)
            if not self._claims[claim]:
                del self._claims[claim]


def cluster_of(manifest: Manifest) -> ClusterName:
    """Return namespace and name of the Cluster that a topology object names."""
    ref = manifest.get("spec", {}).get("clusterRef", {})
    return (ref.get("namespace") or manifest["metadata"].get("namespace", ""), ref.get("name", ""))


def _is_newer(known: Manifest, other: Manifest) -> bool:
    if known["metadata"].get("uid") != other["metadata"].get("uid"):
        return False
    return _version(known) > _version(other)


def _version(manifest: Manifest) -> int:
    """Return the resource version as a number.

    Versions are opaque, except those of one object, which Kubernetes lets us compare since 1.35; before that they were
    numbers of the same store too.
    """
    value = manifest["metadata"].get("resourceVersion", "0")
    return int(value) if str(value).isdigit() else 0


def _seniority(manifest: Manifest) -> tuple[bool, str, str]:
    metadata = manifest["metadata"]
    return ("deletionTimestamp" in metadata, metadata.get("creationTimestamp", ""), metadata.get("uid", ""))


def _trimmed(manifest: Manifest) -> Manifest:
    """Return the manifest without fields that only the API server needs, most of an object's size."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "managedFields"}
    annotations = metadata.get("annotations")
    if annotations:
        metadata["annotations"] = {
            key: value for key, value in annotations.items() if not key.startswith("kubectl.kubernetes.io/")
        }
    return {**manifest, "metadata": metadata}
