"""Reconciles a Cluster.

It makes the Secret, applies the children, grows volumes, replaces pods of an old revision, and writes the status when
it changes. Messages flow without it. What it does each time is in the modules beside it; this one has the order.
"""

from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from penstock_operator.desired import Owner, Plan, plan
from penstock_operator.desired.cluster_plan import revision
from penstock_operator.desired.cluster_status import Facts, restored, status
from penstock_operator.desired.conditions import Says, merged, status_of
from penstock_operator.desired.naming import FINALIZER, is_owned_by
from penstock_operator.engine.administrator import ensure_secret
from penstock_operator.engine.backlog import Key
from penstock_operator.engine.children import Applied, apply_children
from penstock_operator.engine.home import NotYet, certificate_problem, owner_of
from penstock_operator.engine.observing import ask, ask_certificate, has_endpoint, is_running, look
from penstock_operator.engine.restore import backup_to_restore
from penstock_operator.engine.retention import decide_fate
from penstock_operator.engine.rolling import roll
from penstock_operator.engine.volume import grow
from penstock_operator.engine.world import World

Manifest = dict[str, Any]
SOON_SECONDS = 1.0
# Between two log-ins while the broker reads a new password, which Kubernetes brings within about a minute.
PASSWORD_SECONDS = 5.0
WAITING_SECONDS = 10.0
# The reason where the Service of the Cluster's name is another owner's.
ELSEWHERE = "ApplyRefused"


class ClusterReconciler:
    """Stateless: everything is read again each time."""

    def __init__(self, world: World) -> None:
        self._world = world

    def reconcile(self, key: Key) -> float | None:
        manifest = self._world.store.get(key)
        if manifest is None:
            self._wake_topology(key)
            return None
        if "deletionTimestamp" in manifest["metadata"]:
            return self._finalize(key, manifest)
        try:
            owner = owner_of(manifest, self._world.operator_namespace)
        except ValidationError as error:
            self._write(manifest, {"phase": "Failed"}, [Says("Ready", "False", "InvalidSpec", str(error))])
            return None
        if owner.spec.paused:
            self._pause(manifest)
            return None
        return self._settle(key, manifest, owner)

    def _settle(self, key: Key, manifest: Manifest, owner: Owner) -> float:
        world = self._world
        if FINALIZER not in manifest["metadata"].get("finalizers", []):
            finalizers = [*manifest["metadata"].get("finalizers", []), FINALIZER]
            manifest = world.write_finalizers(manifest, finalizers)
        try:
            planned, growth = self._plan(manifest, owner)
        except NotYet as reason:  # without its backup a broker would start empty
            self._write(manifest, {"phase": "Starting"}, [Says("Ready", "False", reason.reason, str(reason))])
            return WAITING_SECONDS
        lacking = ensure_secret(world, manifest, owner, planned)
        applied = apply_children(world, manifest, owner, planned)
        if certificate_problem(world, owner) is None:  # without its certificate another pod would not start
            roll(world, manifest, owner, look(world, owner))
        facts = self._look(owner, planned, applied, growth, lacking)
        annotations = manifest["metadata"].get("annotations", {})
        found, says = status(owner, planned, facts, manifest.get("status", {}), annotations)
        found["restore"] = restored(planned, facts, manifest.get("status", {}), self._world.now())
        self._write(manifest, found, says)
        self._tell_news(key, manifest, says)
        return self._next(planned, facts, applied, says)

    def _plan(self, manifest: Manifest, owner: Owner) -> tuple[Plan, tuple[str, str] | None]:
        """Return the plan, and why the volumes cannot grow. Growing comes first: it may delete the StatefulSet.

        Raises NotYet while the backup to restore is not there.
        """
        restore = backup_to_restore(self._world, manifest, owner)
        workload = self._world.kubernetes.read("apps/v1", "StatefulSet", owner.namespace, owner.name)
        ours = workload if workload is not None and is_owned_by(workload, owner.uid) else None
        known = manifest.get("status", {}).get("revisions", [])
        used = revision(owner.spec.image, ours, known, manifest["metadata"].get("annotations", {}))
        size, growth = grow(self._world, owner, workload)
        return plan(owner, used, size, restore), growth

    def _look(
        self, owner: Owner, planned: Plan, applied: Applied, growth: tuple[str, str] | None, lacking: Says | None
    ) -> Facts:
        brokers = look(self._world, owner)
        problem = _elsewhere(owner, applied)
        is_served = bool(planned.ordinals) and is_running(brokers) and problem is None
        tls = ask_certificate(self._world, owner, is_served=is_served)
        facts = Facts(tuple(brokers), problem, applied.refused, growth, tuple(applied.missing), tls, lacking)
        if not is_served:
            return facts
        answer, problem, password = ask(self._world, owner, planned)
        return replace(
            facts,
            brokers=(replace(brokers[0], broker=answer), *brokers[1:]),
            problem=problem,
            password=lacking or password,
            has_endpoint=has_endpoint(self._world, owner),
        )

    def _next(self, planned: Plan, facts: Facts, applied: Applied, says: list[Says]) -> float:
        reasons = {each.reason for each in says}
        if applied.terminating or (planned.restore is not None and is_running(list(facts.brokers))):
            return SOON_SECONDS
        if reasons & {"CredentialsRejected", "PasswordPending"}:
            return PASSWORD_SECONDS
        is_ready = all(each.broker is not None for each in facts.of(planned)) and "NoEndpoint" not in reasons
        if is_ready:
            return self._world.resync()
        is_asked = facts.problem is None or facts.problem[0] != ELSEWHERE
        return SOON_SECONDS if is_asked and is_running(list(facts.brokers)) else WAITING_SECONDS

    # ------------------------------------------------------------ the status

    def _tell_news(self, key: Key, manifest: Manifest, says: list[Says]) -> None:
        """Report changes: to users by events, to topology objects by a reconcile."""
        before = manifest.get("status", {}).get("conditions", [])
        for each in says:
            if status_of(before, each.type) == each.status or (not before and each.status == "True"):
                continue
            is_bad = each.type == "DataLost" or (each.status == "False" and each.reason not in {"Starting", "Stopped"})
            text = each.message or each.reason
            self._world.kubernetes.tell(manifest, is_warning=is_bad, reason=each.reason, message=text)
        is_ready = any(each.type == "Ready" and each.status == "True" for each in says)
        is_empty = any(each.type == "DataLost" for each in says) and status_of(before, "DataLost") != "True"
        if (is_ready and status_of(before, "Ready") != "True") or is_empty:
            self._wake_topology(key)

    def _wake_topology(self, key: Key) -> None:
        for other in self._world.store.of_broker(key):
            self._world.add(other, 0.0)

    def _pause(self, manifest: Manifest) -> None:
        """Report the pause, and leave the rest of the status as it was: it tells of the manifest applied last.

        A StatefulSet that is missing is not made: users may have paused the Cluster to take it away.
        """
        metadata, before = manifest["metadata"], manifest.get("status", {}).get("conditions", [])
        kept = [each for each in before if each["type"] != "Paused"]
        workload = self._world.kubernetes.read("apps/v1", "StatefulSet", metadata["namespace"], metadata["name"])
        is_missing = workload is None or "deletionTimestamp" in workload["metadata"]
        lacks = "there is no StatefulSet, so that nothing starts the pod again; " if is_missing else ""
        paused = Says("Paused", "True", "Paused", f"{lacks}set spec.paused to false to go on")
        generation = manifest["metadata"].get("generation", 0)
        told = merged(before, [paused], generation, self._world.now())
        self._world.write_status(manifest, {"conditions": [*kept, *told], "phase": "Paused"})

    def _write(self, manifest: Manifest, found: Manifest, says: list[Says]) -> None:
        generation = manifest["metadata"].get("generation", 0)
        before = manifest.get("status", {}).get("conditions", [])
        conditions = merged(before, says, generation, self._world.now())
        self._world.write_status(manifest, {"observedGeneration": generation, "conditions": conditions, **found})

    # ------------------------------------------------------------ deletion

    def _finalize(self, key: Key, manifest: Manifest) -> float | None:
        """Let the Cluster go once the fate of its volume is sure. What else it owns goes by itself."""
        finalizers = manifest["metadata"].get("finalizers", [])
        if FINALIZER not in finalizers:
            return None
        waits = decide_fate(self._world, manifest)
        if waits:
            self._write(manifest, {"phase": "Terminating"}, [Says("Ready", "False", "WaitingForVolume", waits)])
            return SOON_SECONDS
        self._world.brokers.forget(f"{key.name}.{key.namespace}.svc")
        for remembered in (self._world.accepted, self._world.shown):
            remembered.pop((key.namespace, key.name), None)
        self._world.write_finalizers(manifest, [each for each in finalizers if each != FINALIZER])
        self._wake_topology(key)
        return None


def _elsewhere(owner: Owner, applied: Applied) -> tuple[str, str] | None:
    """Return why the broker is not asked: another owner's Service may lead to another broker, with the password."""
    if ("Service", owner.name) not in applied.foreign:
        return None
    name = f"Service '{owner.name}'"
    return ELSEWHERE, f"the broker is not asked, as {name} may lead elsewhere: {applied.refused[name]}"
