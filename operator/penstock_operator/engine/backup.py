"""Reconciles a Backup: makes its Job once, and writes the Job's outcome into the status.

Each step can be interrupted. The Job's name follows from the Backup's uid, so that a Job from before a crash is
found; the phase Running is written after it, and a Job that is missing from then on was deleted by others. A finished
Backup costs no request. Deletions are in `backup_removal`.
"""

from typing import Any, Final

from pydantic import ValidationError

from penstock_operator.api import BackupSpec
from penstock_operator.desired import Owner
from penstock_operator.desired.backup import ENDED, Outcome, Phase, has_ended, phase_of, says
from penstock_operator.desired.backup_job import Access, backup_job, job_name
from penstock_operator.desired.conditions import merged, status_of
from penstock_operator.desired.naming import CLUSTER_LABEL, FINALIZER, PAUSED_ANNOTATION, SCHEDULE_LABEL
from penstock_operator.engine.backlog import Key
from penstock_operator.engine.backup_removal import BackupRemoval, read_job, read_outcome
from penstock_operator.engine.home import Home, NotYet, find_cluster, find_home
from penstock_operator.engine.topology import first_problem
from penstock_operator.engine.workers import Later
from penstock_operator.engine.world import World
from penstock_operator.links import ApiError

Manifest = dict[str, Any]
# Between two looks at a Job that runs; its end is seen by the watch.
RUNNING_SECONDS: Final = 10.0
WAITING_SECONDS: Final = 10.0
# Answers to a Job that a retry alone does not change.
REFUSALS: Final = frozenset({400, 403, 422})
# Reasons whose end wakes the Backup: the Cluster comes, is ready, or is unpaused.
_WOKEN: Final = frozenset({"ClusterNotFound", "ClusterNotReady", "ClusterPaused", "DataLost", "Paused"})
_NO_EVENT: Final = frozenset({"ClusterNotReady", "Paused", "Running"})


class BackupReconciler:
    """Stateless: everything is read again each time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._removal = BackupRemoval(world)

    def reconcile(self, key: Key) -> float | None:
        """Reconcile; return the seconds until the next one, or None to wait for a change."""
        manifest = self._world.store.get(key)
        if manifest is None:
            return None
        if "deletionTimestamp" in manifest["metadata"]:
            return self._finalize(manifest)
        try:
            spec = self._world.store.spec(key)
            assert isinstance(spec, BackupSpec)
        except ValidationError as error:
            if not has_ended(manifest):
                self._report(manifest, Outcome(Phase.PENDING, "InvalidSpec", first_problem(error)))
            return None
        manifest = self._mark(manifest, spec)
        if has_ended(manifest):
            return None
        try:
            return self._settle(manifest, spec)
        except NotYet as reason:
            self._report(manifest, Outcome(phase_of(manifest), reason.reason, str(reason)))
            return self._world.resync() if reason.reason in _WOKEN else WAITING_SECONDS

    def _mark(self, manifest: Manifest, spec: BackupSpec) -> Manifest:
        """Write the finalizer before the file can exist, if it goes with the Backup; and take it away if it stays."""
        finalizers = manifest["metadata"].get("finalizers") or []
        if (FINALIZER in finalizers) == (spec.deletion_policy == "Delete"):
            return manifest
        others = [each for each in finalizers if each != FINALIZER]
        wanted = [*others, FINALIZER] if spec.deletion_policy == "Delete" else others
        return self._world.write_finalizers(manifest, wanted)

    def _settle(self, manifest: Manifest, spec: BackupSpec) -> float | None:
        job = read_job(self._world, manifest, _job_of(manifest))
        if phase_of(manifest) is Phase.RUNNING:
            return self._follow(manifest, job)
        if job is None:
            job = self._start(manifest, spec)
        self._report(manifest, Outcome(Phase.RUNNING, "Running"), **_begun(self._world, job, spec, manifest))
        return RUNNING_SECONDS

    def _start(self, manifest: Manifest, spec: BackupSpec) -> Manifest:
        """Make the Job. Raises NotYet."""
        world = self._world
        if manifest["metadata"].get("annotations", {}).get(PAUSED_ANNOTATION) == "true":
            raise NotYet("Paused", f"take the annotation {PAUSED_ANNOTATION} away to go on")
        home = find_home(world, manifest)
        assert home.owner is not None
        self._check_password(manifest)
        self._check_volume(manifest, spec)
        self._check_fresh(manifest)
        try:
            return world.kubernetes.create(backup_job(manifest, spec, home.owner, _access(home, home.owner)))
        except ApiError as error:
            if error.code not in REFUSALS:
                raise
            raise NotYet("JobRefused", f"Kubernetes refuses the Job: {error}") from error

    def _check_password(self, manifest: Manifest) -> None:
        """Raise NotYet while the broker does not accept the Secret's password, which the Job has."""
        _, cluster = find_cluster(self._world, manifest)
        conditions = (cluster or {}).get("status", {}).get("conditions", [])
        if status_of(conditions, "PasswordSynced") == "False":
            raise NotYet("PasswordPending", "the broker has not read the new password of its administrator yet")

    def _check_volume(self, manifest: Manifest, spec: BackupSpec) -> None:
        """Raise NotYet when the volume is a broker's own: the Job could write there, fill it, and delete there."""
        if spec.target.volume is None:
            return
        namespace, name = manifest["metadata"]["namespace"], spec.target.volume.claim_name
        claim = self._world.kubernetes.read("v1", "PersistentVolumeClaim", namespace, name)
        cluster = ((claim or {}).get("metadata") or {}).get("labels", {}).get(CLUSTER_LABEL)
        if cluster:
            raise NotYet("TargetRefused", f"the volume '{name}' has the messages of Cluster '{cluster}'; use another")

    def _check_fresh(self, manifest: Manifest) -> None:
        """Raise Later when the Backup went or ran already, which the store does not show yet."""
        metadata = manifest["metadata"]
        found = self._world.kubernetes.read(manifest["apiVersion"], "Backup", metadata["namespace"], metadata["name"])
        is_same = found is not None and found["metadata"].get("uid") == metadata.get("uid")
        if found is None or not is_same or phase_of(found) is not Phase.PENDING:
            raise Later

    def _follow(self, manifest: Manifest, job: Manifest | None) -> float | None:
        """Take the state of a Job that was made."""
        if job is None:
            message = "the Job was deleted before it ended; if the file is there, it may be whole: make another Backup"
            self._report(manifest, Outcome(Phase.FAILED, "JobDeleted", message))
            self._ended(manifest)
            return None
        found = read_outcome(self._world, manifest, job)
        if found.phase not in ENDED:
            self._report(manifest, found)
            return RUNNING_SECONDS
        more = dict(found.report)
        if found.phase is Phase.COMPLETED:
            more["completedAt"] = found.ended_at or self._world.now()
        self._report(manifest, found, **more)
        self._ended(manifest)
        return None

    def _ended(self, manifest: Manifest) -> None:
        """Wake the schedule: the next Backup may be due, and old ones may go."""
        name = manifest["metadata"].get("labels", {}).get(SCHEDULE_LABEL)
        key = Key("ScheduledBackup", manifest["metadata"]["namespace"], str(name))
        if self._world.store.get(key) is not None:
            self._world.add(key, 0.0)

    def _report(self, manifest: Manifest, found: Outcome, **more: Any) -> None:
        metadata, before = manifest["metadata"], manifest.get("status", {}).get("conditions", [])
        generation = metadata.get("generation", 0)
        told = next((each.get("reason") for each in before if each.get("type") == "Ready"), "")
        conditions = merged(before, says(found.phase, found.reason, found.message), generation, self._world.now())
        status = {"phase": found.phase.value, "observedGeneration": generation, "conditions": conditions, **more}
        self._world.write_status(manifest, status, is_exact=True)
        if found.reason != told and found.reason not in _NO_EVENT:
            is_bad = found.phase is not Phase.COMPLETED
            message = found.message or f"Backup '{metadata['name']}' is whole"
            self._world.kubernetes.tell(manifest, is_warning=is_bad, reason=found.reason, message=message)

    # ------------------------------------------------------------ deletion

    def _finalize(self, manifest: Manifest) -> float | None:
        again = self._removal.finalize(manifest)
        if again is None:
            self._ended(manifest)
        return again


def _begun(world: World, job: Manifest, spec: BackupSpec, manifest: Manifest) -> Manifest:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return {
        "job": job["metadata"]["name"],
        "image": container["image"],
        "target": str(spec.target.of(manifest["metadata"]["name"])),
        "startedAt": world.now(),
    }


def _job_of(manifest: Manifest) -> str:
    return job_name(manifest["metadata"]["name"], manifest["metadata"]["uid"])


def _access(home: Home, owner: Owner) -> Access:
    tls = owner.spec.tls
    clients = tls.client_certificates if tls is not None else None
    return Access(home.account, bool(home.authority), clients.operator_secret_name if clients is not None else "")
