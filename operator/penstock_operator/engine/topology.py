"""Reconciles topology objects: finds the thing on the broker, does what `desired.ownership` decides, and reports it.

The first object that describes a thing owns it. Each step can be interrupted: the mark of ownership comes before the
change on the broker, and the status after it.
"""

from typing import Any, Final

from pydantic import ValidationError

from penstock_operator.api import TopologySpec, UserSpec
from penstock_operator.desired.accounts import Refused, refused_account, refused_tags
from penstock_operator.desired.naming import FINALIZER, PAUSED_ANNOTATION
from penstock_operator.desired.ownership import Action, Mark, Owned, Put, Refuse, Tell, Unmark, plan
from penstock_operator.desired.topology import Fields, gives
from penstock_operator.engine.backlog import Key
from penstock_operator.engine.census import Census
from penstock_operator.engine.claims import check_claims
from penstock_operator.engine.connection import connect_by
from penstock_operator.engine.home import Home, NotYet, find_home, may_administer
from penstock_operator.engine.removal import Removal
from penstock_operator.engine.report import report_obstacle, report_synced
from penstock_operator.engine.session import Session
from penstock_operator.engine.store import broker_of
from penstock_operator.engine.users import Credentials, find_credentials, resolve_user
from penstock_operator.engine.workers import Later
from penstock_operator.engine.world import World
from penstock_operator.links import BrokerUnreachableError

Manifest = dict[str, Any]
# Reasons that another object may resolve at any time.
LACKING: Final = frozenset(
    {"NotFound", "AccessRefused", "UserNotFound", "SecretNotFound", "SecretRefused", "ClusterNotFound"}
)
# Reasons that follow from what the broker has.
COMPARED: Final = frozenset({"Drift", "Mismatch", "Exists", "TagsNotAllowed"})
ATTEMPTS_UNTOLD: Final = 4
MOMENT_SECONDS: Final = 0.1


class TopologyReconciler:
    """Reconciler of all kinds in a broker."""

    def __init__(self, world: World, census: Census) -> None:
        self._world = world
        self._removal = Removal(world, census)
        # The revisions of objects that were compared with the broker.
        self._compared: dict[Key, str] = {}

    def reconcile(self, key: Key, attempts: int = 0) -> float | None:
        """Reconcile; return the seconds until the next one, or None to wait for a change. Raises faults and Later."""
        manifest = self._world.store.get(key)
        if manifest is None or "deletionTimestamp" in manifest["metadata"]:
            self._compared.pop(key, None)
            return None if manifest is None else self._removal.finalize(key, manifest)
        try:
            has_acted = self._settle(key, manifest, self._read(key, manifest))
            return self._next(key, manifest, is_sure=has_acted)
        except ValidationError as error:
            report_obstacle(self._world, manifest, NotYet("InvalidSpec", first_problem(error)))
            return None
        except NotYet as reason:
            return self._wait(key, manifest, reason, attempts)
        except BrokerUnreachableError as error:
            # No Cluster reports a broker that the operator does not run.
            is_lasting = attempts >= ATTEMPTS_UNTOLD and broker_of(manifest).kind == "Secret"
            report_obstacle(self._world, manifest, NotYet("BrokerUnreachable", str(error)), is_lasting=is_lasting)
            raise

    def _next(self, key: Key, manifest: Manifest, *, is_sure: bool) -> float:
        """Return the delay. What was compared may be a list from before the object changed: then look again, once."""
        known = self._world.store.get(key) or manifest
        is_news = self._compared.get(key) != manifest["metadata"].get("resourceVersion")
        self._compared[key] = known["metadata"].get("resourceVersion", "")
        if is_news and not is_sure:
            return self._world.brokers.listings.age_max() + MOMENT_SECONDS
        return self._world.resync_with(broker_of(manifest))

    def _wait(self, key: Key, manifest: Manifest, reason: NotYet, attempts: int) -> float:
        """Return the delay.

        Objects applied together come in any order: a missing one is reported after some attempts only.
        """
        if reason.reason not in LACKING:
            report_obstacle(self._world, manifest, reason)
            return self._next(key, manifest, is_sure=reason.reason not in COMPARED)
        if attempts >= ATTEMPTS_UNTOLD:
            report_obstacle(self._world, manifest, reason)
        raise Later

    def _read(self, key: Key, manifest: Manifest) -> TopologySpec:
        spec = self._world.store.spec(key)
        assert isinstance(spec, TopologySpec)
        if manifest["metadata"].get("annotations", {}).get(PAUSED_ANNOTATION) == "true":
            raise NotYet("Paused", f"take the annotation {PAUSED_ANNOTATION} away to go on")
        return spec

    def _settle(self, key: Key, manifest: Manifest, spec: TopologySpec) -> bool:
        """Make the broker match and report it; return whether anything had to be done. Raises NotYet."""
        world = self._world
        broker = broker_of(manifest)
        home = find_home(world, manifest) if broker.kind == "Cluster" else connect_by(world, broker)
        spec = resolve_user(world, manifest, spec)
        _check(refused_account(spec, home.account))
        check_claims(world, home.owner, key)
        session = Session(world, home, spec)
        found = session.find()
        owned = owned_by(manifest)
        if found is None:
            session.check_data()
        _check(self._refused_tags(spec, home, manifest, found, owned))
        actions = plan(spec, found, owned)
        credentials: Credentials | None = None
        if isinstance(spec, UserSpec) and not any(isinstance(each, Refuse) for each in actions):
            is_kept = found is not None and spec.prevent_update
            credentials = find_credentials(world, manifest, spec, home, may_make=not is_kept)
            if found is not None:
                has_password = credentials is not None and session.has_password(credentials, found)
                actions = plan(spec, found, owned, has_password=has_password)
        manifest = self._perform(manifest, session, actions, credentials, is_new=found is None)
        told = [each for each in actions if isinstance(each, Tell)]
        report_synced(world, manifest, spec, told, credentials)
        return bool(actions)

    def _refused_tags(
        self, spec: TopologySpec, home: Home, manifest: Manifest, found: Fields | None, owned: Owned
    ) -> Refused | None:
        namespace = manifest["metadata"]["namespace"]
        is_ours = owned.is_marked and owned.was_made
        on_broker = [] if found is None or is_ours else found.get("tags", [])
        return refused_tags(
            spec, on_broker, namespace, may_administer=may_administer(self._world, home.owner, namespace)
        )

    def _perform(
        self,
        manifest: Manifest,
        session: Session,
        actions: list[Action],
        credentials: Credentials | None,
        *,
        is_new: bool,
    ) -> Manifest:
        """Perform the actions in their order; return the changed manifest. Raises NotYet for a refusal."""
        for action in actions:
            match action:
                case Mark():
                    manifest = self._world.write_finalizers(manifest, [*_finalizers(manifest), FINALIZER])
                case Unmark():
                    kept = [each for each in _finalizers(manifest) if each != FINALIZER]
                    manifest = self._world.write_finalizers(manifest, kept)
                case Put():
                    session.put(credentials, is_new=is_new)
                    if is_new:
                        self._wake_dependents(manifest, session.spec)
                case Refuse(reason, message, drift):
                    raise NotYet(reason, message, drift)
        return manifest

    def _wake_dependents(self, manifest: Manifest, spec: TopologySpec) -> None:
        """Wake the objects that need what was made: they wait for it, or went with its predecessor."""
        need = gives(spec)
        if need is not None:
            for other in self._world.store.needing(broker_of(manifest), need):
                self._world.add(other, 0.0)


def owned_by(manifest: Manifest) -> Owned:
    """Return an object's hold on its thing."""
    status = manifest.get("status") or {}
    return Owned(
        is_marked=FINALIZER in _finalizers(manifest),
        was_made=bool(status.get("lastSyncTime")),
        is_known=status.get("observedGeneration") == manifest["metadata"].get("generation", 0),
    )


def _finalizers(manifest: Manifest) -> list[str]:
    finalizers: list[str] = manifest["metadata"].get("finalizers") or []
    return finalizers


def _check(refused: Refused | None) -> None:
    if refused is not None:
        raise NotYet(refused.reason, refused.message)


def first_problem(error: ValidationError) -> str:
    """Return the first thing that is wrong with a spec, with its place."""
    problem = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in problem["loc"])
    return f"spec.{where}: {problem['msg']}"
