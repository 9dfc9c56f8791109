"""Lets a deleted topology object go, after its thing was removed from the broker where the manifest says so.

A deletion never waits for what its Cluster would have the object wait for: pauses, lost data, namespaces that are no
longer allowed. It waits only for a broker that cannot be asked or refuses, says so, and an annotation releases it.
Nothing is removed that another object describes, that the object does not own, or that it may not touch.
"""

from typing import Any, Final

from pydantic import ValidationError

from penstock_operator.api import GrantSpec, TopologySpec, VHostSpec
from penstock_operator.desired import Owner
from penstock_operator.desired.accounts import Refused, refused_account, refused_tags
from penstock_operator.desired.naming import ADMINISTRATOR, FINALIZER, RELEASE_ANNOTATION
from penstock_operator.desired.ownership import DEFAULT_VHOST, Remove, Tell, plan_removal
from penstock_operator.desired.topology import Need, same_kinds
from penstock_operator.engine.backlog import Key
from penstock_operator.engine.census import LACKING, Census
from penstock_operator.engine.claims import successors
from penstock_operator.engine.connection import connect_to_leave, is_lost
from penstock_operator.engine.home import Home, NotYet, admits, enter, known_owner, may_administer
from penstock_operator.engine.report import report_event, report_waiting
from penstock_operator.engine.session import Session
from penstock_operator.engine.store import broker_of
from penstock_operator.engine.world import World
from penstock_operator.links import ApiError, BrokerUnreachableError

Manifest = dict[str, Any]
RETRY_SECONDS: Final = 10.0
# Refusals of a look-up: no broker has a thing of such a name, and no retry finds it.
UNNAMEABLE: Final = frozenset({"InvalidArgument", "TooLarge"})
# Kinds in a virtual host that are retained unless their manifest says otherwise.
HELD_BY_VHOSTS: Final = ("Queue", "Stream")


class Removal:
    """Stateless, as the reconciler is."""

    def __init__(self, world: World, census: Census) -> None:
        self._world = world
        self._census = census

    def finalize(self, key: Key, manifest: Manifest) -> float | None:
        """Remove what the object owns; return the seconds until the next attempt, None when it went."""
        finalizers = manifest["metadata"].get("finalizers", [])
        if FINALIZER not in finalizers:
            return None
        try:
            told = self._released(manifest) or self._remove(key, manifest)
        except NotYet as reason:
            report_waiting(self._world, manifest, reason)
            return RETRY_SECONDS
        except BrokerUnreachableError as error:
            report_waiting(self._world, manifest, NotYet("BrokerUnreachable", str(error)))
            raise
        others = [other for other in self._world.store.claimants(key) if other != key]
        if told is not None:
            report_event(self._world, manifest, told)
        self._world.write_finalizers(manifest, [each for each in finalizers if each != FINALIZER])
        for other in others:
            self._world.add(other, 0.0)
        return None

    def _released(self, manifest: Manifest) -> Tell | None:
        if manifest["metadata"].get("annotations", {}).get(RELEASE_ANNOTATION) != "true":
            return None
        return Tell("Released", f"released by the annotation {RELEASE_ANNOTATION}; it stays on the broker")

    def _remove(self, key: Key, manifest: Manifest) -> Tell | None:
        """Remove the thing, if the object may; return an event. Raises NotYet when it cannot be removed now."""
        world = self._world
        try:
            spec = self._deletable(key, manifest)
        except ValidationError:
            was_made = bool(manifest.get("status", {}).get("lastSyncTime"))
            return Tell("LeftOnBroker", "its spec is invalid now; delete it there") if was_made else None
        if spec is None:
            return None
        for kind in (*_kinds(key), "Cluster"):
            self._list_again(kind, world.store.deletion_seen(key))
        broker, owner = broker_of(manifest), None
        if broker.kind == "Cluster":
            owner = self._owner_by(broker)
            if owner is None:
                return None
        return self._remove_from(broker, owner, key, manifest, spec)

    def _list_again(self, kind: str, moment: int) -> None:
        """List a kind, whose objects may need the thing. Raises NotYet while the kind or the role is missing."""
        try:
            self._census.freshen(kind, moment)
        except ApiError as error:
            if error.code not in LACKING:
                raise
            why = f"objects of kind {kind}, which may need this, cannot be listed: {error}"
            raise NotYet("KindNotListed", f"{why}; upgrade the operator's chart") from error

    def _owner_by(self, key: Key) -> Owner | None:
        """Return the Cluster; None when it is gone, and its broker with it. Raises NotYet."""
        cluster = self._world.store.get(key)
        if cluster is None and key.namespace in self._census.unlisted("Cluster"):
            raise _unlisted(key.namespace)
        if cluster is None or "deletionTimestamp" in cluster["metadata"]:
            return None
        return known_owner(self._world, key, cluster)

    def _remove_from(
        self, broker: Key, owner: Owner | None, key: Key, manifest: Manifest, spec: TopologySpec
    ) -> Tell | None:
        """Remove the thing unless another object describes it; without an owner a Secret leads to the broker."""
        world = self._world
        if successors(world, owner, key):
            return None
        left = self._forbidden(owner, key, manifest, spec)
        if left is not None:
            return left
        if owner is not None and owner.spec.replicas == 0:
            raise NotYet("ClusterStopped", f"Cluster '{owner.name}' is stopped; set its spec.replicas to 1")
        self._check_retained(broker, owner, spec)
        self._check_listed(owner, key)
        try:
            home = enter(world, owner) if owner is not None else connect_to_leave(world, broker)
        except NotYet as reason:
            if owner is None and reason.reason == "SecretNotFound" and is_lost(world, broker):
                return Tell("LeftOnBroker", f"{reason}; the namespace is being deleted")
            raise
        return self._remove_from_broker(home, key, manifest, spec)

    def _deletable(self, key: Key, manifest: Manifest) -> TopologySpec | None:
        """Return the spec of an object whose manifest says Delete, with the user that it was applied for."""
        try:
            spec = self._world.store.spec(key)
        except KeyError:
            return None  # it went meanwhile
        assert isinstance(spec, TopologySpec)
        if getattr(spec, "deletion_policy", "Retain") == "Retain":
            return None
        if isinstance(spec, GrantSpec) and spec.user_ref is not None:
            name = manifest.get("status", {}).get("brokerName")
            return spec.model_copy(update={"user": name}) if name else None
        return spec

    def _forbidden(self, owner: Owner | None, key: Key, manifest: Manifest, spec: TopologySpec) -> Tell | None:
        """Return why the thing is not the object's to remove. A mark alone may be the work of a user."""
        was_made = bool(manifest.get("status", {}).get("lastSyncTime"))
        if owner is not None and not was_made and not admits(self._world, owner, key.namespace):
            return Tell("LeftOnBroker", f"Cluster '{owner.name}' never took it from namespace '{key.namespace}'")
        refused = refused_account(spec, ADMINISTRATOR)
        return _left(refused) if refused is not None else None

    def _check_listed(self, owner: Owner | None, key: Key) -> None:
        """Raise NotYet when another object may claim the thing that is not known. A Secret serves one namespace."""
        if owner is None:
            return
        unlisted = {each for kind in _kinds(key) for each in self._census.unlisted(kind)}
        for namespace in sorted(unlisted - {key.namespace}):
            if admits(self._world, owner, namespace):
                raise _unlisted(namespace)

    def _check_retained(self, broker: Key, owner: Owner | None, spec: TopologySpec) -> None:
        """Raise NotYet when a virtual host holds a queue or a stream whose manifest says Retain."""
        if not isinstance(spec, VHostSpec) or spec.name == DEFAULT_VHOST:
            return
        for key in self._world.store.needing(broker, Need("VHost", "", spec.name)):
            if key.kind in HELD_BY_VHOSTS and self._retains(owner, key):
                raise NotYet(
                    "HoldsRetained",
                    f"{key.kind} '{key.name}' in namespace '{key.namespace}' has deletionPolicy Retain and is in"
                    f" vhost '{spec.name}'; delete that object, or set its deletionPolicy to Delete",
                )

    def _retains(self, owner: Owner | None, key: Key) -> bool:
        """Return whether an object says Retain, also an invalid one, and has or had a right to."""
        manifest = self._world.store.get(key)
        if manifest is None or manifest.get("spec", {}).get("deletionPolicy", "Retain") != "Retain":
            return False
        was_made = bool((manifest.get("status") or {}).get("lastSyncTime"))
        return was_made or admits(self._world, owner, key.namespace)

    def _remove_from_broker(self, home: Home, key: Key, manifest: Manifest, spec: TopologySpec) -> Tell | None:
        world = self._world
        try:
            session = Session(world, home, spec)
            found = session.find()
        except NotYet as reason:
            if reason.reason == "NotFound":
                return None  # its virtual host is gone, and so is what was in it
            if reason.reason in UNNAMEABLE:
                return Tell("LeftOnBroker", f"the broker takes no such name: {reason}")
            raise
        was_made = bool(manifest.get("status", {}).get("lastSyncTime"))
        may = was_made or may_administer(world, home.owner, key.namespace)
        refused = refused_account(spec, home.account) or refused_tags(
            spec, (found or {}).get("tags", []), key.namespace, may_administer=may
        )
        if refused is not None:
            return _left(refused)
        for action in plan_removal(spec, found):
            match action:
                case Remove():
                    session.remove()
                case Tell():
                    return action
        return None


def _kinds(key: Key) -> tuple[str, ...]:
    """Return the kinds whose objects may keep the thing of one that is deleted."""
    return (*same_kinds(key.kind), *(HELD_BY_VHOSTS if key.kind == "VHost" else ()))


def _unlisted(namespace: str) -> NotYet:
    return NotYet(
        "NamespaceNotListed",
        f"the operator has no role in namespace '{namespace}', whose objects may need this; upgrade its chart, or take"
        " the namespace out of watchNamespaces",
    )


def _left(refused: Refused) -> Tell:
    return Tell("LeftOnBroker", refused.message)
