"""Writes what users see of an object in a broker: its conditions, its status and its events.

An event is written when the reason is new. A restarting broker changes no conditions: a good one stays until shown
otherwise, except on an object that is deleted, which always says what it waits for.
"""

from typing import Any, Final

from penstock_operator.api import TopologySpec
from penstock_operator.desired.conditions import Says, merged, status_of
from penstock_operator.desired.naming import RELEASE_ANNOTATION
from penstock_operator.desired.ownership import Tell
from penstock_operator.desired.topology import broker_name
from penstock_operator.engine.home import NotYet
from penstock_operator.engine.users import Credentials
from penstock_operator.engine.world import World

Manifest = dict[str, Any]
# Bounds of status.drift: the API server would refuse the whole status.
DRIFTS_MAX: Final = 32
DRIFT_LENGTH_MAX: Final = 256
_PASSING: Final = frozenset({"ClusterNotReady", "ClusterPaused", "BrokerUnreachable"})
_NO_EVENT: Final = frozenset({"ClusterNotReady", "BrokerUnreachable", "Paused"})
_WARNINGS: Final = frozenset({"DriftRepaired", "LeftOnBroker"})


def report_synced(
    world: World, manifest: Manifest, spec: TopologySpec, told: list[Tell], credentials: Credentials | None
) -> None:
    """Report that the broker matches, and what was done for it."""
    status: Manifest = {"brokerName": broker_name(spec), "drift": None}
    if told or not manifest.get("status", {}).get("lastSyncTime"):
        status["lastSyncTime"] = world.now()
    if credentials is not None:
        status["binding"] = {"name": credentials.secret}
    _write(world, manifest, [Says("Ready", "True", "Synced"), Says("Synced", "True", "Synced")], status)
    for each in told:
        report_event(world, manifest, each)


def report_event(world: World, manifest: Manifest, told: Tell) -> None:
    message = f"{manifest['kind']} '{manifest['metadata']['name']}': {told.message}"
    world.kubernetes.tell(manifest, is_warning=told.reason in _WARNINGS, reason=told.reason, message=message)


def report_obstacle(world: World, manifest: Manifest, obstacle: NotYet, *, is_lasting: bool = False) -> None:
    """Report why an object is not applied. A lasting obstacle is reported also where it would have passed."""
    is_synced = status_of(manifest.get("status", {}).get("conditions", []), "Ready") == "True"
    if obstacle.reason in _PASSING and is_synced and not is_lasting:
        return
    is_new = _reason_of(manifest) != obstacle.reason
    _write_obstacle(world, manifest, obstacle, str(obstacle))
    if is_new and obstacle.reason not in _NO_EVENT:
        world.kubernetes.tell(manifest, is_warning=True, reason=obstacle.reason, message=str(obstacle))


def report_waiting(world: World, manifest: Manifest, obstacle: NotYet) -> None:
    """Report what a deletion waits for, and how to end it."""
    remedy = f"the annotation {RELEASE_ANNOTATION}=true lets the object go and leaves the rest on the broker"
    message = f"the deletion waits: {obstacle}; {remedy}"
    is_new = _reason_of(manifest) != obstacle.reason
    _write_obstacle(world, manifest, obstacle, message)
    if is_new:
        world.kubernetes.tell(manifest, is_warning=True, reason="DeletionWaits", message=message)


def _write_obstacle(world: World, manifest: Manifest, obstacle: NotYet, message: str) -> None:
    reason = obstacle.reason
    says = [Says("Ready", "False", reason, message), Says("Synced", "False", reason, message)]
    if reason == "Conflict":
        says.append(Says("Conflict", "True", reason, message))
    drift = [each[:DRIFT_LENGTH_MAX] for each in obstacle.drift[:DRIFTS_MAX]]
    _write(world, manifest, says, {"drift": drift or None})


def _reason_of(manifest: Manifest) -> str:
    before = manifest.get("status", {}).get("conditions", [])
    return next((str(each.get("reason")) for each in before if each.get("type") == "Ready"), "")


def _write(world: World, manifest: Manifest, says: list[Says], more: Manifest) -> None:
    generation = manifest["metadata"].get("generation", 0)
    before = manifest.get("status", {}).get("conditions", [])
    conditions = merged(before, says, generation, world.now())
    world.write_status(manifest, {"observedGeneration": generation, "conditions": conditions, **more})
