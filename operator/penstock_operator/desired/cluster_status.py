"""A Cluster's status from the observed facts.

It is pure, so that each failure shown to users has a test. Facts are plain data of Kubernetes and of the broker.
"""

from dataclasses import dataclass, field
from typing import Any

from penstock_operator.desired.conditions import Says
from penstock_operator.desired.naming import GRPC_PORT, LOSS_SEEN_ANNOTATION, METRICS_PORT, Owner

Manifest = dict[str, Any]
PULL_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ErrImageInspect"}
)


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """State that the broker reports."""

    version: str
    corruption: tuple[str, ...] = ()
    # Id of the data directory; empty for a broker that does not report it yet.
    data_id: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Observed facts. `problem` is why the broker could not be asked, `blocked` why something could not be applied."""

    pod: Manifest | None = None
    claim: Manifest | None = None
    broker: BrokerFacts | None = None
    problem: tuple[str, str] | None = None
    blocked: tuple[str, str] | None = None
    growth: tuple[str, str] | None = None
    missing: tuple[str, ...] = field(default=())
    # State of the served certificate: status, reason and message. None without TLS.
    tls: Says | None = None


def status(owner: Owner, facts: Facts, before: Manifest, annotations: Manifest) -> tuple[Manifest, list[Says]]:
    """Return the status without its conditions, and the conditions."""
    storage = storage_id(owner, facts)
    loss = _loss(owner, before, facts, annotations)
    ready = _ready(owner, facts, loss)
    found: Manifest = {
        "phase": _phase(owner, ready),
        "replicas": owner.spec.replicas,
        "readyReplicas": 1 if ready.status == "True" and owner.spec.replicas else 0,
        "selector": ",".join(f"{key}={value}" for key, value in sorted(owner.selector.items())),
        "currentVersion": facts.broker.version if facts.broker else before.get("currentVersion"),
        "storageId": storage or before.get("storageId"),
        "dataId": _data_id(before, storage, facts),
        "binding": {"name": owner.secret},
        "endpoints": {"grpc": f"{owner.host}:{GRPC_PORT}", "metrics": f"{owner.host}:{METRICS_PORT}"},
        "brokers": _brokers(owner, facts),
    }
    says = [ready, _storage(facts), loss, _warnings(facts), facts.tls]
    return found, [each for each in says if each is not None]


def storage_id(owner: Owner, facts: Facts) -> str | None:
    """Return the volume's identity; with emptyDir it is the pod's."""
    holder = facts.claim if owner.spec.storage.mode == "pvc" else facts.pod
    if holder is None or "deletionTimestamp" in holder["metadata"]:
        return None
    return str(holder["metadata"]["uid"])


def _ready(owner: Owner, facts: Facts, loss: Says | None) -> Says:
    if facts.blocked:
        return Says("Ready", "False", *facts.blocked)
    if owner.spec.replicas == 0:
        return Says("Ready", "False", "Stopped", "spec.replicas is 0; the volume is kept")
    if facts.pod is None:
        return Says("Ready", "False", "Starting", "the pod is being made")
    trouble = pod_trouble(facts.pod)
    if trouble:
        return Says("Ready", "False", *trouble)
    if facts.problem:
        return Says("Ready", "False", *facts.problem)
    if facts.broker is None:
        return Says("Ready", "False", "Starting", "the broker is starting; a long replay takes its time")
    if loss is not None and waits_after_loss(owner):
        return Says("Ready", "False", "DataLost", loss.message)
    return Says("Ready", "True", "Serving")


def pod_trouble(pod: Manifest) -> tuple[str, str] | None:
    """Return why a pod does not run, with the remedy."""
    spec, found = pod.get("spec", {}), pod.get("status", {})
    for each in found.get("containerStatuses", []):
        waiting = each.get("state", {}).get("waiting") or {}
        reason, message = waiting.get("reason", ""), waiting.get("message", "")
        if reason in PULL_REASONS:
            image = spec.get("containers", [{}])[0].get("image", "")
            return "ImagePullFailed", f"the image '{image}' cannot be pulled; correct spec.image: {reason}: {message}"
        if reason == "CrashLoopBackOff":
            ended = each.get("lastState", {}).get("terminated") or {}
            last = (ended.get("message") or "").strip().splitlines()[-1:]
            return "BrokerCrashes", f"exit code {ended.get('exitCode')}; its last words: {''.join(last)}"
        if reason in {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}:
            return "ContainerFailed", f"{reason}: {message}"
    for each in found.get("conditions", []):
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return "Unschedulable", f"no node takes the pod: {each.get('message', '')}"
    return None


def is_pod_ready(pod: Manifest) -> bool:
    if "deletionTimestamp" in pod["metadata"]:
        return False
    conditions = pod.get("status", {}).get("conditions", [])
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _phase(owner: Owner, ready: Says) -> str:
    if owner.spec.replicas == 0:
        return "Stopped"
    if ready.status == "True":
        return "Running"
    return "Starting" if ready.reason in {"Starting", "BrokerUnreachable"} else "Failed"


def _storage(facts: Facts) -> Says:
    if facts.growth:
        return Says("StorageHealthy", "False", *facts.growth)
    if facts.broker and facts.broker.corruption:
        return Says("StorageHealthy", "False", "Corrupt", "; ".join(facts.broker.corruption))
    phase = (facts.claim or {}).get("status", {}).get("phase")
    if phase in {"Pending", "Lost"}:
        return Says("StorageHealthy", "False", f"Volume{phase}", f"the volume claim is {phase}")
    return Says("StorageHealthy", "True", "Healthy")


def waits_after_loss(owner: Owner) -> bool:
    """Return whether a loss must be acknowledged: not if the volume goes with every pod, by the user's choice."""
    return owner.spec.storage.loss_policy == "Manual" and owner.spec.storage.mode == "pvc"


def _data_id(before: Manifest, storage: str | None, facts: Facts) -> str | None:
    """Return the data id. On another volume it is read again: the changed volume already reports that loss."""
    if facts.broker is not None and facts.broker.data_id:
        return facts.broker.data_id
    is_replaced = storage is not None and before.get("storageId") not in {None, storage}
    return None if is_replaced else before.get("dataId")


def _loss(owner: Owner, before: Manifest, facts: Facts, annotations: Manifest) -> Says | None:
    """Return the loss, until a user acknowledges it by the id that the message names."""
    volume, directory = before.get("storageId"), before.get("dataId")
    storage, data = storage_id(owner, facts), facts.broker.data_id if facts.broker else ""
    when = " after you acknowledge this" if waits_after_loss(owner) else ". To acknowledge this"
    after = f"The operator declares everything in the manifests again{when}: annotate"
    if volume and storage and volume != storage:
        message = (
            f"the volume {volume} is gone and the broker began empty on {storage}: its messages are lost. {after}"
            f" {LOSS_SEEN_ANNOTATION}={storage}"
        )
        return Says("DataLost", "True", "VolumeReplaced", message)
    if directory and data and directory != data:
        message = (
            f"the data directory {directory} on the volume is gone, and the broker works on another one, {data}: its"
            f" contents are lost, unless another directory was restored. {after} {LOSS_SEEN_ANNOTATION}={data}"
        )
        return Says("DataLost", "True", "DataReplaced", message)
    told = next((each for each in before.get("conditions", []) if each.get("type") == "DataLost"), None)
    seen = annotations.get(LOSS_SEEN_ANNOTATION)
    if told is None or seen == (directory if told["reason"] == "DataReplaced" else volume):
        return None
    return Says("DataLost", "True", told["reason"], told["message"])


def _warnings(facts: Facts) -> Says:
    if facts.missing:
        kinds = ", ".join(facts.missing)
        return Says(
            "NoWarnings", "False", "KindsMissing", f"this Kubernetes has no {kinds}; install them or turn it off"
        )
    return Says("NoWarnings", "True", "NoWarnings")


def _brokers(owner: Owner, facts: Facts) -> list[Manifest]:
    if facts.pod is None:
        return []
    found = {"pod": owner.pod, "node": facts.pod.get("spec", {}).get("nodeName"), "storageId": storage_id(owner, facts)}
    return [{key: value for key, value in found.items() if value is not None}]
