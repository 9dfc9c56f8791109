"""Cache of the watched objects: the last manifest of each, indexed by broker, by thing on a broker and by its needs.

The watches and our own writes update it, and the workers read it. An older manifest never replaces a newer one.
"""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from threading import RLock
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from penstock_operator.api import KINDS, GrantSpec, TopologySpec, UserSpec
from penstock_operator.api.fields import Model
from penstock_operator.desired.naming import FINALIZER
from penstock_operator.desired.topology import SAME_THING, Need, identity, needs
from penstock_operator.engine.backlog import Key

Manifest = dict[str, Any]
Claim = tuple[str, Key, tuple[str, ...]]
P = TypeVar("P", bound=Hashable)
# Annotations that count; others may have 256 KiB in each object.
ANNOTATIONS: Final = "penstock.dev/"
_WITH_ARGUMENTS: Final = frozenset({"Queue", "Stream", "Exchange"})


@dataclass(frozen=True, slots=True)
class _Links:
    """The places where a topology object is indexed."""

    broker: Key
    claim: Claim | None = None
    needs: tuple[Need, ...] = ()
    # The User object that a grant names.
    user: Key | None = None
    # The Secret that it names.
    secret: Key | None = None


class Store:
    """Thread-safe. Manifests are shared and must not be changed. Its moments order puts and lists, as a clock does."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._moment = 0
        self._objects: dict[Key, Manifest] = {}
        self._specs: dict[Key, Model] = {}
        self._of_broker: dict[Key, set[Key]] = {}
        self._claims: dict[Claim, set[Key]] = {}
        self._needing: dict[tuple[Key, Need], set[Key]] = {}
        self._grants: dict[Key, set[Key]] = {}
        self._naming: dict[Key, set[Key]] = {}
        self._links: dict[Key, _Links] = {}
        # When each deletion was first seen.
        self._deletions: dict[Key, int] = {}

    def put(self, manifest: Manifest) -> Key:
        metadata = manifest["metadata"]
        key = Key(manifest["kind"], metadata.get("namespace", ""), metadata["name"])
        with self._lock:
            self._moment += 1
            known = self._objects.get(key)
            if known is not None and _is_newer(known, manifest):
                return key
            if known is None or not _is_same_spec(known, manifest):
                self._specs.pop(key, None)
            self._unlink(key)
            self._objects[key] = _trimmed(manifest)
            if "deletionTimestamp" in metadata:
                self._deletions.setdefault(key, self._moment)
            else:
                self._deletions.pop(key, None)
            self._link(key)
            if known is None or known["metadata"].get("uid") != metadata.get("uid"):
                self._relink(key)
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
            self._specs.pop(key, None)
            self._deletions.pop(key, None)
            self._relink(key)

    def get(self, key: Key) -> Manifest | None:
        with self._lock:
            return self._objects.get(key)

    def spec(self, key: Key) -> Model:
        """Return the spec of one of our objects, checked once. Raises KeyError, or ValidationError for a wrong one."""
        with self._lock:
            return self._spec(key)

    def tick(self) -> int:
        """Begin a new moment: it is later than all puts so far."""
        with self._lock:
            self._moment += 1
            return self._moment

    def deletion_seen(self, key: Key) -> int:
        """Return the moment at which an object's deletion was seen first."""
        with self._lock:
            return self._deletions.get(key, self._moment)

    def uids(self, kind: str) -> dict[Key, str | None]:
        """Return the objects of a kind."""
        with self._lock:
            return {key: each["metadata"].get("uid") for key, each in self._objects.items() if key.kind == kind}

    def of_broker(self, broker: Key) -> list[Key]:
        """Return the objects that name a Cluster, or the Secret that leads to a broker."""
        with self._lock:
            return list(self._of_broker.get(broker, ()))

    def broker_of(self, key: Key) -> Key:
        """Return what leads to the broker of a topology object; of an unknown one, a Cluster without a name."""
        with self._lock:
            links = self._links.get(key)
            return Key("Cluster", key.namespace, "") if links is None else links.broker

    def backups_of(self, cluster: Key) -> list[Manifest]:
        """Return the Backups of a Cluster."""
        with self._lock:
            return [self._objects[key] for key in self._of_broker.get(cluster, ()) if key.kind == "Backup"]

    def of_kind(self, kind: str) -> list[Manifest]:
        """Return the objects of a kind."""
        with self._lock:
            return [each for key, each in self._objects.items() if key.kind == kind]

    def of_namespace(self, namespace: str) -> list[Key]:
        """Return the objects in a namespace that name a Cluster."""
        with self._lock:
            return [key for key in self._links if key.namespace == namespace]

    def needing(self, broker: Key, need: Need) -> list[Key]:
        """Return the objects that need this thing on the broker."""
        with self._lock:
            return list(self._needing.get((broker, need), ()))

    def naming(self, secret: Key) -> list[Key]:
        """Return the objects that name this Secret, for a password or for a broker."""
        with self._lock:
            return list({*self._naming.get(secret, ()), *self._of_broker.get(secret, ())})

    def all(self) -> list[Key]:
        """Return the objects of our kinds, without the Secrets and namespaces that are watched beside them."""
        with self._lock:
            return [key for key in self._objects if key.kind in KINDS]

    def not_ready(self) -> Counter[tuple[str, str, str]]:
        """Return how many objects say that they are not ready, by namespace, kind and reason."""
        with self._lock:
            objects = [(key, each) for key, each in self._objects.items() if key.kind in KINDS]
        found = ((key, _ready_of(each)) for key, each in objects)
        return Counter((key.namespace, key.kind, reason) for key, (status, reason) in found if status == "False")

    def claimants(self, key: Key) -> list[Key]:
        """Return the objects that describe the same thing on the same broker, oldest first; deleted ones come last."""
        with self._lock:
            links = self._links.get(key)
            if links is None or links.claim is None:
                return [key]
            return sorted(self._claims.get(links.claim, ()), key=lambda each: _seniority(self._objects[each]))

    # ------------------------------------------------------------ indexes

    def _spec(self, key: Key) -> Model:
        if key not in self._specs:
            self._specs[key] = KINDS[key.kind].spec.model_validate(self._objects[key].get("spec", {}))
        return self._specs[key]

    def _link(self, key: Key) -> None:
        if key.kind not in KINDS or not KINDS[key.kind].has_cluster:
            return
        manifest = self._objects[key]
        broker = broker_of(manifest)
        if not KINDS[key.kind].is_topology:
            self._links[key] = _Links(broker)
            self._of_broker.setdefault(broker, set()).add(key)
            return
        links = _Links(broker)
        try:
            spec = self._spec(key)
        except ValidationError:
            links = _of_invalid(key, broker, manifest)
        else:
            assert isinstance(spec, TopologySpec)
            links = self._linked(key, broker, spec)
        self._links[key] = links
        self._of_broker.setdefault(broker, set()).add(key)
        if links.claim is not None:
            self._claims.setdefault(links.claim, set()).add(key)
        if links.user is not None:
            self._grants.setdefault(links.user, set()).add(key)
        if links.secret is not None:
            self._naming.setdefault(links.secret, set()).add(key)
        for need in links.needs:
            self._needing.setdefault((broker, need), set()).add(key)

    def _linked(self, key: Key, broker: Key, spec: TopologySpec) -> _Links:
        user: Key | None = None
        if isinstance(spec, GrantSpec) and spec.user_ref is not None:
            user = Key("User", key.namespace, spec.user_ref.name)
            spec = spec.model_copy(update={"user": self._user_named(user, self._objects[key])})
        claim = (SAME_THING.get(key.kind, key.kind), broker, identity(spec))
        return _Links(broker, claim, needs(spec), user, _secret_named(key, spec))

    def _user_named(self, user: Key, grant: Manifest) -> str:
        """Return the name on the broker of a User object, or the one that it had when it was last there."""
        known = self._objects.get(user)
        if known is not None:
            return str(known.get("spec", {}).get("name", ""))
        return grant.get("status", {}).get("brokerName") or f"userRef:{user.namespace}/{user.name}"

    def _relink(self, user: Key) -> None:
        """Index the grants of a User that came or went again."""
        for key in list(self._grants.get(user, ())):
            self._unlink(key)
            self._link(key)

    def _unlink(self, key: Key) -> None:
        links = self._links.pop(key, None)
        if links is None:
            return
        _discard(self._of_broker, links.broker, key)
        if links.claim is not None:
            _discard(self._claims, links.claim, key)
        if links.user is not None:
            _discard(self._grants, links.user, key)
        if links.secret is not None:
            _discard(self._naming, links.secret, key)
        for need in links.needs:
            _discard(self._needing, (links.broker, need), key)


def _of_invalid(key: Key, broker: Key, manifest: Manifest) -> _Links:
    """Return the links of an object whose spec is invalid now: it claims nothing, except what it owns already.

    The API server has checked names and virtual hosts, which cannot change; arguments can be anything.
    """
    metadata, spec = manifest["metadata"], manifest.get("spec", {})
    is_owner = FINALIZER in (metadata.get("finalizers") or []) and (manifest.get("status") or {}).get("lastSyncTime")
    if key.kind not in _WITH_ARGUMENTS or not is_owner:
        return _Links(broker)
    vhost, name = str(spec.get("vhost", "/")), str(spec.get("name", ""))
    thing = SAME_THING.get(key.kind, key.kind)
    return _Links(broker, (thing, broker, (vhost, name)), (Need("VHost", "", vhost),))


def _secret_named(key: Key, spec: TopologySpec) -> Key | None:
    if isinstance(spec, UserSpec) and spec.import_credentials_secret is not None:
        return Key("Secret", key.namespace, spec.import_credentials_secret.name)
    return None


def _discard(index: dict[P, set[Key]], place: P, key: Key) -> None:
    found = index.get(place, set())
    found.discard(key)
    if not found:
        index.pop(place, None)


def _is_same_spec(known: Manifest, other: Manifest) -> bool:
    """Return whether the API server says that the spec did not change."""
    before, after = known["metadata"], other["metadata"]
    is_known = after.get("generation") is not None and before.get("generation") == after["generation"]
    return is_known and before.get("uid") == after.get("uid")


def broker_of(manifest: Manifest) -> Key:
    """Return what leads to the broker of a topology object: a Cluster, or a Secret."""
    spec, namespace = manifest.get("spec", {}), manifest["metadata"].get("namespace", "")
    connection = spec.get("connectionSecretRef")
    if connection:
        return Key("Secret", namespace, connection.get("name", ""))
    ref = spec.get("clusterRef") or {}
    return Key("Cluster", ref.get("namespace") or namespace, ref.get("name", ""))


def _ready_of(manifest: Manifest) -> tuple[str, str]:
    """Return status and reason of the condition Ready, empty before it was written."""
    for each in (manifest.get("status") or {}).get("conditions") or []:
        if each.get("type") == "Ready":
            return str(each.get("status", "")), str(each.get("reason", ""))
    return "", ""


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
    """Return the manifest without fields that the operator does not use: most of an object's size, or all of it."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "managedFields"}
    annotations = metadata.get("annotations")
    if annotations:
        metadata["annotations"] = {key: value for key, value in annotations.items() if key.startswith(ANNOTATIONS)}
    return {**manifest, "metadata": metadata}
