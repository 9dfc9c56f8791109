"""Reconciles a ScheduledBackup: makes the Backup that is due, deletes those that are not kept, and says so.

The decision is in `desired.schedule`. A crash between a Backup and the status that names it is no harm, as the Backup's
name follows from the time that was due. Backups outlive their schedule: they have no owner reference to it.
"""

from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ValidationError

from penstock_operator.api import ScheduledBackupSpec
from penstock_operator.api.kinds import API_VERSION
from penstock_operator.desired.conditions import Says, merged
from penstock_operator.desired.cron import Cron, ScheduleError
from penstock_operator.desired.naming import (
    DUE_ANNOTATION,
    FIELD_MANAGER,
    PAUSED_ANNOTATION,
    SCHEDULE_ANNOTATION,
    SCHEDULE_LABEL,
)
from penstock_operator.desired.schedule import Decision, Delete, Make, Schedule, Skip, decide, newest, parse_time
from penstock_operator.engine.backlog import Key
from penstock_operator.engine.store import broker_of
from penstock_operator.engine.topology import first_problem
from penstock_operator.engine.world import World
from penstock_operator.links import ApiError

Manifest = dict[str, Any]
REFUSALS: Final = frozenset({400, 403, 422})
CONFLICT: Final = 409
RETRY_SECONDS: Final = 60.0
# A timer may be a little early.
LATER_SECONDS: Final = 1.0


class ScheduleReconciler:
    """Stateless: the status and the Backups have all that it needs."""

    def __init__(self, world: World) -> None:
        self._world = world

    def reconcile(self, key: Key) -> float | None:
        """Reconcile; return the seconds until the next one, or None to wait for a change."""
        manifest = self._world.store.get(key)
        if manifest is None or "deletionTimestamp" in manifest["metadata"]:
            return None
        try:
            spec = self._world.store.spec(key)
            assert isinstance(spec, ScheduledBackupSpec)
            cron = Cron.parse(spec.schedule, spec.time_zone)
        except ValidationError as error:
            self._report(manifest, Says("Ready", "False", "InvalidSpec", first_problem(error)), {})
            return None
        except ScheduleError as error:
            self._report(manifest, Says("Ready", "False", "InvalidSpec", str(error)), {"nextScheduleTime": None})
            return None
        if manifest["metadata"].get("annotations", {}).get(PAUSED_ANNOTATION) == "true":
            spec = spec.model_copy(update={"suspend": True})
        return self._settle(manifest, spec, cron)

    def _settle(self, manifest: Manifest, spec: ScheduledBackupSpec, cron: Cron) -> float:
        world = self._world
        now = parse_time(world.now(), datetime.now(UTC))
        schedule = _schedule_of(manifest, now)
        backups = world.store.backups_of(broker_of(manifest))
        decision = decide(spec, cron, schedule, now, backups)
        says = Says("Ready", "False", "Suspended", "no Backups are made") if spec.suspend else _says(manifest, decision)
        refusal = self._perform(manifest, spec, schedule, decision)
        if refusal is not None:
            says = refusal
        ours = [each for each in backups if schedule.owns(each)]
        status = {"nextScheduleTime": _text(decision.following), "dueSince": _text(decision.due_since)}
        status |= {"lastCompletedName": newest(ours)}
        if refusal is None:
            made = [each.name for each in decision.actions if isinstance(each, Make)]
            status |= {"lastScheduleTime": _text(decision.last)} | ({"lastBackupName": made[0]} if made else {})
        self._report(manifest, says, status)
        if refusal is not None:
            return RETRY_SECONDS
        wait = world.resync()
        if decision.following is not None:
            wait = min(wait, max(0.0, (decision.following - now).total_seconds()) + LATER_SECONDS)
        return wait

    def _perform(
        self, manifest: Manifest, spec: ScheduledBackupSpec, schedule: Schedule, decision: Decision
    ) -> Says | None:
        """Perform the actions; return why the Backup that is due could not be made."""
        refusal = None
        for action in decision.actions:
            match action:
                case Make():
                    refusal = self._make(manifest, spec, schedule, action)
                case Skip(due, running):
                    text = f"{_text(due)} was skipped, as Backup '{running}' had not ended"
                    self._tell(manifest, "BackupSkipped", text, is_warning=True)
                case Delete(name):
                    self._delete(manifest, name)
        return refusal

    def _make(self, manifest: Manifest, spec: ScheduledBackupSpec, schedule: Schedule, action: Make) -> Says | None:
        made = _backup(manifest, spec, action)
        try:
            self._world.add(self._world.store.put(self._world.kubernetes.create(made)), 0.0)
        except ApiError as error:
            if error.code == CONFLICT and (found := self._read(made)) is not None:
                return _foreign(found, schedule)
            if error.code not in REFUSALS:
                raise
            return Says("Ready", "False", "BackupRefused", f"Kubernetes refuses Backup '{action.name}': {error}")
        if action.missed is not None:
            first, last = _text(action.missed), _text(action.due)
            text = f"times from {first} on were missed; the Backup of the last, {last}, is made now"
            self._tell(manifest, "BackupsMissed", text, is_warning=True)
        return None

    def _read(self, made: Manifest) -> Manifest | None:
        """Return the Backup that has the name already; the store may not have it yet."""
        metadata = made["metadata"]
        return self._world.kubernetes.read(API_VERSION, "Backup", metadata["namespace"], metadata["name"])

    def _delete(self, manifest: Manifest, name: str) -> None:
        namespace = manifest["metadata"]["namespace"]
        found = self._world.store.get(Key("Backup", namespace, name))
        if found is not None:
            self._world.kubernetes.delete({**found, "apiVersion": API_VERSION, "kind": "Backup"})
            self._tell(manifest, "BackupExpired", f"Backup '{name}' was deleted, as spec.retention says")

    def _tell(self, manifest: Manifest, reason: str, message: str, *, is_warning: bool = False) -> None:
        self._world.kubernetes.tell(manifest, is_warning=is_warning, reason=reason, message=message)

    def _report(self, manifest: Manifest, says: Says, status: Manifest) -> None:
        before, generation = manifest.get("status", {}).get("conditions", []), manifest["metadata"].get("generation", 0)
        conditions = merged(before, [says], generation, self._world.now())
        self._world.write_status(manifest, {"observedGeneration": generation, "conditions": conditions, **status})


def _foreign(found: Manifest, schedule: Schedule) -> Says | None:
    """Return what is wrong with a Backup that is there already; None when this schedule made it before a crash."""
    if schedule.owns(found):
        return None
    name = found["metadata"]["name"]
    return Says("Ready", "False", "NameTaken", f"the Backup '{name}' is not this schedule's; delete it")


def _schedule_of(manifest: Manifest, now: datetime) -> Schedule:
    metadata, status = manifest["metadata"], manifest.get("status", {})
    made_at = parse_time(str(metadata.get("creationTimestamp") or ""), now)
    last, due = (status.get(name) for name in ("lastScheduleTime", "dueSince"))
    last, due = (parse_time(str(each), now) if each else None for each in (last, due))
    return Schedule(metadata["name"], metadata["uid"], made_at, last, due)


def _says(manifest: Manifest, decision: Decision) -> Says:
    """Return the condition; what was skipped is told until the next time that is due."""
    for each in decision.actions:
        if isinstance(each, Skip):
            text = f"{_text(each.due)} was skipped, as Backup '{each.running}' had not ended"
            return Says("Ready", "True", "Skipped", text)
    conditions = manifest.get("status", {}).get("conditions", [])
    before: Manifest = next((each for each in conditions if each["type"] == "Ready"), {})
    is_dealt_with = _text(decision.last) == manifest.get("status", {}).get("lastScheduleTime")
    if before.get("reason") == "Skipped" and is_dealt_with:
        return Says("Ready", "True", "Skipped", before.get("message", ""))
    return Says("Ready", "True", "Scheduled")


def _backup(manifest: Manifest, spec: ScheduledBackupSpec, action: Make) -> Manifest:
    metadata = manifest["metadata"]
    return {
        "apiVersion": API_VERSION,
        "kind": "Backup",
        "metadata": {
            "name": action.name,
            "namespace": metadata["namespace"],
            "labels": {"app.kubernetes.io/managed-by": FIELD_MANAGER, SCHEDULE_LABEL: metadata["name"]},
            "annotations": {SCHEDULE_ANNOTATION: metadata["uid"], DUE_ANNOTATION: _text(action.due)},
        },
        "spec": {"clusterRef": spec.cluster_ref.manifest(), **spec.template.manifest()},
    }


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
