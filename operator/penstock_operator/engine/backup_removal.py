"""Lets a deleted Backup go; its file first, where the manifest says so.

Only the file of a completed Backup is deleted: one that failed may have found another's there. A deletion always ends.
A Job that runs is stopped, the Job that deletes the file has a deadline, and what cannot be deleted is left, with an
event that says so. The annotation releases the Backup at once.
"""

from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from penstock_operator.api import BackupSpec, ClusterSpec
from penstock_operator.desired.backup import ENDED, Outcome, Phase, outcome, phase_of
from penstock_operator.desired.backup_job import deletion_job, job_name
from penstock_operator.desired.conditions import Says, merged
from penstock_operator.desired.naming import FINALIZER, RELEASE_ANNOTATION, is_owned_by
from penstock_operator.engine.backlog import Key
from penstock_operator.engine.children import REFUSALS
from penstock_operator.engine.home import NotYet, find_cluster
from penstock_operator.engine.world import World
from penstock_operator.links import ApiError

Manifest = dict[str, Any]
SOON_SECONDS: Final = 2.0
LEFT: Final = "LeftAtTarget"
# What a pod of a Job has as a label.
JOB_LABEL: Final = "batch.kubernetes.io/job-name"


class Note(NamedTuple):
    """An event about a Backup that goes."""

    reason: str
    message: str


class BackupRemoval:
    """Stateless, as the reconciler is."""

    def __init__(self, world: World) -> None:
        self._world = world

    def finalize(self, manifest: Manifest) -> float | None:
        """Remove what is to go; return the seconds until the next attempt, None when the Backup went."""
        finalizers = manifest["metadata"].get("finalizers") or []
        if FINALIZER not in finalizers:
            return None
        try:
            told = self._released(manifest) or self._remove(manifest)
        except NotYet as reason:
            self._report(manifest, reason)
            return SOON_SECONDS
        if told is not None:
            self._tell(manifest, told)
        self._world.write_finalizers(manifest, [each for each in finalizers if each != FINALIZER])
        return None

    def _released(self, manifest: Manifest) -> Note | None:
        if manifest["metadata"].get("annotations", {}).get(RELEASE_ANNOTATION) != "true":
            return None
        return Note("Released", f"released by the annotation {RELEASE_ANNOTATION}; {_file(manifest)} stays")

    def _remove(self, manifest: Manifest) -> Note | None:
        """Delete the file, if it is the Backup's; return an event. Raises NotYet while a Job is at work."""
        phase = phase_of(manifest)
        if phase not in ENDED:
            phase = self._stop(manifest)
            if phase is Phase.RUNNING:
                return Note(LEFT, f"its Job was stopped; if {_file(manifest)} is there, delete it by hand")
        if phase is not Phase.COMPLETED:
            return None
        try:
            spec = BackupSpec.model_validate(manifest["spec"])
        except ValidationError:
            return Note(LEFT, f"its spec is invalid now; delete {_file(manifest)} by hand")
        return self._delete_file(manifest, spec) if spec.deletion_policy == "Delete" else None

    def _stop(self, manifest: Manifest) -> Phase:
        """Stop the Job with its pods; return the phase that the Backup has then. Raises NotYet until it is gone."""
        metadata = manifest["metadata"]
        job = read_job(self._world, manifest, job_name(metadata["name"], metadata["uid"]))
        if job is None:
            return phase_of(manifest)
        found = read_outcome(self._world, manifest, job)
        if found.phase in ENDED:
            return found.phase
        if "deletionTimestamp" not in job["metadata"]:
            self._world.kubernetes.delete(job, propagation="Foreground")
        raise NotYet("JobRuns", f"the Job '{job['metadata']['name']}' is being stopped")

    def _delete_file(self, manifest: Manifest, spec: BackupSpec) -> Note | None:
        world, metadata = self._world, manifest["metadata"]
        name = job_name(metadata["name"], metadata["uid"], "-delete")
        job = world.kubernetes.read("batch/v1", "Job", metadata["namespace"], name)
        if job is None:
            refusal = self._make(manifest, spec)
            if refusal:
                return Note(LEFT, f"{refusal}; delete {_file(manifest)} by hand")
            raise NotYet("FileDeleting", f"the Job '{name}' deletes {_file(manifest)}")
        found = read_outcome(world, manifest, {**job, "apiVersion": "batch/v1", "kind": "Job"})
        if found.phase not in ENDED:
            raise NotYet("FileDeleting", f"the Job '{name}' deletes {_file(manifest)}")
        if found.phase is Phase.COMPLETED:
            return None
        return Note(LEFT, f"{_file(manifest)} could not be deleted: {found.message}; delete it by hand")

    def _make(self, manifest: Manifest, spec: BackupSpec) -> str:
        """Make the Job that deletes the file; return why there can be none."""
        key, cluster = find_cluster(self._world, manifest)
        found = self._spec_of(key) if cluster is not None else None
        image = manifest.get("status", {}).get("image") or (found.image if found is not None else "")
        if not image:
            return "no image is known to delete it with"
        pull_secrets = [each.manifest() for each in found.image_pull_secrets] if found is not None else []
        try:
            self._world.kubernetes.create(deletion_job(manifest, spec, image, pull_secrets))
        except ApiError as error:
            if error.code not in REFUSALS:
                raise
            return f"Kubernetes refuses the Job: {error}"
        return ""

    def _spec_of(self, key: Key) -> ClusterSpec | None:
        try:
            spec = self._world.store.spec(key)
        except (KeyError, ValidationError):
            return None
        return spec if isinstance(spec, ClusterSpec) else None

    def _report(self, manifest: Manifest, reason: NotYet) -> None:
        before, generation = manifest.get("status", {}).get("conditions", []), manifest["metadata"].get("generation", 0)
        ready = Says(
            "Ready", "False", reason.reason, f"{reason}; the annotation {RELEASE_ANNOTATION}=true ends the wait"
        )
        others = [each for each in before if each.get("type") != "Ready"]
        told = merged(before, [ready], generation, self._world.now())
        self._world.write_status(manifest, {"conditions": [*told, *others]})

    def _tell(self, manifest: Manifest, told: Note) -> None:
        message = f"Backup '{manifest['metadata']['name']}': {told.message}"
        self._world.kubernetes.tell(manifest, is_warning=told.reason == LEFT, reason=told.reason, message=message)


def read_job(world: World, manifest: Manifest, name: str) -> Manifest | None:
    """Return the Job of a Backup. Raises NotYet when another object's has the name."""
    found = world.kubernetes.read("batch/v1", "Job", manifest["metadata"]["namespace"], name)
    if found is None:
        return None
    if not is_owned_by(found, manifest["metadata"]["uid"]):
        raise NotYet("JobTaken", f"the Job '{name}' is not this Backup's; delete it")
    return {**found, "apiVersion": "batch/v1", "kind": "Job"}


def read_outcome(world: World, manifest: Manifest, job: Manifest) -> Outcome:
    """Return the state of a Job with what its pods said."""
    name, uid = job["metadata"]["name"], job["metadata"].get("uid", "")
    pods = world.kubernetes.list("v1", "Pod", manifest["metadata"]["namespace"], f"{JOB_LABEL}={name}")
    return outcome(job, [each for each in pods if is_owned_by(each, uid)])


def _file(manifest: Manifest) -> str:
    return f"'{manifest.get('status', {}).get('target') or 'its file'}'"
