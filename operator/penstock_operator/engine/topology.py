"""Reconciles topology objects: finds, compares, makes or repairs, and reports in the object's conditions.

The first object that describes a thing owns it; only its owner removes a thing, and only when the manifest says Delete.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import ValidationError

from penstock import Connection
from penstock.client.errors import AccessRefusedError, NotAuthenticatedError, NotFoundError, PenstockError, RefusedError
from penstock_operator.api import KINDS, GrantSpec, TopologySpec, UserSpec
from penstock_operator.desired.conditions import Says, merged, status_of
from penstock_operator.desired.naming import ADMINISTRATOR, FINALIZER, PAUSED_ANNOTATION
from penstock_operator.desired.topology import REPAIRABLE, broker_name, described, drift
from penstock_operator.engine.backlog import Key
from penstock_operator.engine.home import Home, NotYet, find_home, is_there
from penstock_operator.engine.users import Credentials, find_credentials, resolve_user
from penstock_operator.engine.workers import Later
from penstock_operator.engine.world import World
from penstock_operator.links import BrokerUnreachableError
from penstock_operator.links.brokers import UNREACHABLE
from penstock_operator.links.topology import find, open_vhost, put, remove

Manifest = dict[str, Any]
T = TypeVar("T")
RETRY_SECONDS = 10.0
# Reasons that another object may resolve at any time.
LACKING = frozenset({"NotFound", "AccessRefused", "UserNotFound", "SecretNotFound", "ClusterNotFound"})
ATTEMPTS_UNTOLD = 4


class TopologyReconciler:
    """Reconciler of all kinds but Cluster. Stateless: everything is read again each time."""

    def __init__(self, world: World) -> None:
        self._world = world

    def reconcile(self, key: Key, attempts: int = 0) -> float | None:
        """Reconcile; return the seconds until the next one, or None to wait for a change. Raises faults and Later."""
        manifest = self._world.store.get(key)
        if manifest is None:
            return None
        if "deletionTimestamp" in manifest["metadata"]:
            return self._finalize(key, manifest)
        try:
            return self._settle(key, manifest, self._read(manifest))
        except ValidationError as error:
            self._say(manifest, NotYet("InvalidSpec", _first_problem(error)))
            return None
        except NotYet as reason:
            return self._wait(manifest, reason, attempts)
        except BrokerUnreachableError as error:
            self._say(manifest, NotYet("BrokerUnreachable", str(error)))
            raise

    def _wait(self, manifest: Manifest, reason: NotYet, attempts: int) -> float:
        """Return the delay.

        Objects applied together come in any order: a missing one is reported after some attempts only.
        """
        if reason.reason not in LACKING:
            self._say(manifest, reason)
            return self._world.resync()
        if attempts >= ATTEMPTS_UNTOLD:
            self._say(manifest, reason)
        raise Later

    def _read(self, manifest: Manifest) -> TopologySpec:
        spec = KINDS[manifest["kind"]].spec.model_validate(manifest["spec"])
        assert isinstance(spec, TopologySpec)
        if manifest["metadata"].get("annotations", {}).get(PAUSED_ANNOTATION) == "true":
            raise NotYet("Paused", f"take the annotation {PAUSED_ANNOTATION} away to go on")
        return spec

    def _settle(self, key: Key, manifest: Manifest, spec: TopologySpec) -> float:
        world = self._world
        home = find_home(world, manifest)
        spec = resolve_user(world, manifest, spec)
        self._check_claims(key)
        broker = self._connect(home, spec)
        is_claimed = FINALIZER in manifest["metadata"].get("finalizers", [])
        found = self._ask(home, spec, lambda: find(broker, spec))
        if found is not None and not is_claimed and not spec.adopt:
            raise NotYet("Exists", "the broker has one already; set spec.adopt to take it over, or choose another name")
        if not is_claimed:
            finalizers = [*manifest["metadata"].get("finalizers", []), FINALIZER]
            manifest = world.write_finalizers(manifest, finalizers)
        credentials = find_credentials(world, manifest, spec, home) if isinstance(spec, UserSpec) else None
        change = self._change(manifest, spec, found)
        if change or (credentials is not None and not world.brokers.accepts(credentials.address)):
            password = credentials.password if credentials else None
            self._ask(home, spec, lambda: put(broker, spec, ADMINISTRATOR, password))
        self._say_synced(manifest, spec, change, credentials)
        return world.resync()

    def _check_claims(self, key: Key) -> None:
        owner = self._world.store.claimants(key)[0]
        if owner != key:
            raise NotYet(
                "Conflict",
                f"{owner.kind} '{owner.name}' in namespace '{owner.namespace}' describes the same and is older",
            )

    def _connect(self, home: Home, spec: TopologySpec) -> Connection:
        try:
            return self._world.brokers.get(home.address(getattr(spec, "vhost", "/")))
        except NotAuthenticatedError as error:
            raise NotYet("CredentialsRejected", f"the Cluster's Secret does not open the broker: {error}") from error
        except NotFoundError as error:
            raise NotYet("NotFound", str(error)) from error

    def _change(self, manifest: Manifest, spec: TopologySpec, found: dict[str, Any] | None) -> str:
        """Make the change; return an event's reason, empty when there was none.

        Raises NotYet when a difference cannot be repaired or must not be.
        """
        before = manifest.get("status", {})
        was_made = bool(before.get("lastSyncTime"))
        is_known = was_made and before.get("observedGeneration") == manifest["metadata"].get("generation", 0)
        if found is None:
            if was_made and spec.prevent_update:
                raise NotYet("Drift", "it is gone from the broker, and spec.preventUpdate says to leave it so")
            return "DriftRepaired" if was_made else "Created"
        differing = drift(spec, found)
        if not differing:
            return ""
        says = described(differing, spec, found)
        if spec.prevent_update:
            raise NotYet("Drift", f"{says}; spec.preventUpdate says to leave it so")
        if manifest["kind"] not in REPAIRABLE:
            raise NotYet(
                "Mismatch", f"the broker's cannot be changed into this: {says}; delete it there, or correct this"
            )
        return "DriftRepaired" if is_known else "Updated"

    def _ask(self, home: Home, spec: TopologySpec, ask: Callable[[], T]) -> T:
        """Ask the broker; first open a vhost that someone else made, which refuses access at first."""
        try:
            return _asked(ask)
        except NotYet as refusal:
            if refusal.reason != "AccessRefused":
                raise
        vhost = getattr(spec, "vhost", "/")
        admin = self._world.brokers.get(home.address())
        _asked(lambda: open_vhost(admin, vhost, ADMINISTRATOR))
        return _asked(ask)

    def _say_synced(self, manifest: Manifest, spec: TopologySpec, change: str, credentials: Credentials | None) -> None:
        status: Manifest = {"brokerName": broker_name(spec), "drift": None}
        if change or not manifest.get("status", {}).get("lastSyncTime"):
            status["lastSyncTime"] = self._world.now()
        if credentials is not None:
            status["binding"] = {"name": credentials.secret}
        self._write(manifest, [Says("Ready", "True", "Synced"), Says("Synced", "True", "Synced")], status)
        if change == "DriftRepaired":
            message = f"the broker differed from the manifest and was put right: {manifest['kind']} {broker_name(spec)}"
            self._world.kubernetes.tell(manifest, is_warning=True, reason=change, message=message)

    def _say(self, manifest: Manifest, reason: NotYet) -> None:
        """Write the conditions.

        A restarting broker does not change them: a good condition stays until shown otherwise.
        """
        if reason.reason in {"ClusterNotReady", "ClusterPaused", "BrokerUnreachable"} and _was_synced(manifest):
            return
        before = manifest.get("status", {}).get("conditions", [])
        is_new = next((each.get("reason") for each in before if each.get("type") == "Ready"), "") != reason.reason
        says = [Says("Ready", "False", reason.reason, str(reason)), Says("Synced", "False", reason.reason, str(reason))]
        if reason.reason == "Conflict":
            says.append(Says("Conflict", "True", reason.reason, str(reason)))
        drifted = [str(reason)] if reason.reason in {"Drift", "Mismatch"} else None
        self._write(manifest, says, {"drift": drifted})
        if is_new and reason.reason not in {"ClusterNotReady", "BrokerUnreachable", "Paused"}:
            self._world.kubernetes.tell(manifest, is_warning=True, reason=reason.reason, message=str(reason))

    def _write(self, manifest: Manifest, says: list[Says], more: Manifest) -> None:
        generation = manifest["metadata"].get("generation", 0)
        before = manifest.get("status", {}).get("conditions", [])
        conditions = merged(before, says, generation, self._world.now())
        self._world.write_status(manifest, {"observedGeneration": generation, "conditions": conditions, **more})

    # ------------------------------------------------------------ deletion

    def _finalize(self, key: Key, manifest: Manifest) -> float | None:
        """Let the object go after removing its thing from the broker, where the manifest says so."""
        finalizers = manifest["metadata"].get("finalizers", [])
        if FINALIZER not in finalizers:
            return None
        others = [other for other in self._world.store.claimants(key) if other != key]
        if not others:
            try:
                self._remove(manifest)
            except NotYet as reason:
                self._say(manifest, reason)
                return RETRY_SECONDS
        self._world.write_finalizers(manifest, [each for each in finalizers if each != FINALIZER])
        for other in others:
            self._world.add(other, 0.0)
        return None

    def _remove(self, manifest: Manifest) -> None:
        """Remove the thing. Raises NotYet when it cannot be removed now; does nothing without a broker."""
        try:
            spec = KINDS[manifest["kind"]].spec.model_validate(manifest["spec"])
        except ValidationError:
            return  # an invalid object was never applied
        assert isinstance(spec, TopologySpec)
        if getattr(spec, "deletion_policy", "Retain") == "Retain" or not is_there(self._world, manifest):
            return
        home = find_home(self._world, manifest, is_deletion=True)
        if isinstance(spec, GrantSpec) and spec.user_ref is not None:
            spec = spec.model_copy(update={"user": manifest.get("status", {}).get("brokerName")})
        try:
            broker = self._connect(home, spec)
        except NotYet as reason:
            if reason.reason == "NotFound":
                return  # its virtual host is gone, and so is what was in it
            raise
        self._ask(home, spec, lambda: remove(broker, spec))


def _asked(ask: Callable[[], T]) -> T:
    """Return the broker's answer; raise its refusal as a NotYet."""
    try:
        return ask()
    except AccessRefusedError as error:
        raise NotYet("AccessRefused", str(error)) from error
    except UNREACHABLE as error:
        raise BrokerUnreachableError(str(error)) from error
    except RefusedError as error:
        raise NotYet(_reason(error), str(error)) from error
    except PenstockError as error:
        raise NotYet("BrokerBlocked", str(error)) from error


def _reason(error: RefusedError) -> str:
    """Return the reason: NotFoundError -> NotFound."""
    return type(error).__name__.removesuffix("Error")


def _was_synced(manifest: Manifest) -> bool:
    return status_of(manifest.get("status", {}).get("conditions", []), "Ready") == "True"


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in problem["loc"])
    return f"spec.{where}: {problem['msg']}"
