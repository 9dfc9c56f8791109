"""A Cluster's status from the observed facts.

It is pure, so that each failure shown to users has a test. Facts are plain data of Kubernetes and of the broker.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock_operator.desired.cluster_plan import Plan, revisions
from penstock_operator.desired.conditions import Says
from penstock_operator.desired.naming import GRPC_PORT, LOSS_SEEN_ANNOTATION, METRICS_PORT, RESTORE, Owner

Manifest = dict[str, Any]
PULL_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ErrImageInspect"}
)
# Reasons of a Secret that a pod mounts, and cannot start without.
NEEDED = frozenset({"CertificateNotFound", "CertificateIncomplete", "SecretIncomplete"})


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """State that the broker reports."""

    version: str
    corruption: tuple[str, ...] = ()
    # Id of the data directory; empty for a broker that does not report it yet.
    data_id: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """One broker as observed: its pod, its volume, and its own report if it gave one."""

    ordinal: int
    pod: Manifest | None = None
    claim: Manifest | None = None
    broker: BrokerFacts | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """Observed facts, with one entry in `brokers` for each of the plan's ordinals and each volume that is kept.

    `problem` is why a broker could not be asked, `refused` what could not be applied, by the object's name.
    """

    brokers: tuple[Seen, ...] = ()
    problem: tuple[str, str] | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    growth: tuple[str, str] | None = None
    missing: tuple[str, ...] = field(default=())
    # State of the served certificate: status, reason and message. None without TLS.
    tls: Says | None = None
    # State of the administrator's password: whether the broker accepts the Secret's. None while it cannot be asked.
    password: Says | None = None
    # Whether clients reach a broker by the Service. None where the operator may not read that.
    has_endpoint: bool | None = None

    def of(self, plan: Plan) -> list[Seen]:
        """Return the brokers that should run."""
        return [each for each in self.brokers if each.ordinal in plan.ordinals]


def status(
    owner: Owner, plan: Plan, facts: Facts, before: Manifest, annotations: Manifest
) -> tuple[Manifest, list[Says]]:
    """Return the status without its conditions, and the conditions."""
    brokers = [_broker(owner, each, before) for each in facts.brokers]
    loss = _loss(owner, facts, before, annotations)
    ready = _ready(owner, plan, facts, loss)
    versions = [each.broker.version for each in facts.brokers if each.broker]
    first = brokers[0] if brokers else {}
    found: Manifest = {
        "phase": _phase(owner, ready),
        "replicas": len(plan.ordinals),
        "readyReplicas": sum(each["ready"] for each in brokers),
        "selector": ",".join(f"{key}={value}" for key, value in sorted(owner.selector.items())),
        "currentVersion": versions[0] if versions else before.get("currentVersion"),
        "storageId": first.get("storageId"),
        "dataId": first.get("dataId"),
        "storageSize": plan.size,
        "binding": {"name": owner.secret},
        "endpoints": {
            "grpc": f"{owner.host}:{GRPC_PORT}",
            **({"amqp": f"{owner.host}:{owner.amqp_port[1]}"} if owner.amqp_port else {}),
            "metrics": f"{owner.host}:{METRICS_PORT}",
        },
        "brokers": brokers,
        "revisions": revisions(owner.spec.image, plan.revision, before.get("revisions", [])),
    }
    says = [ready, _applied(facts), _storage(facts), loss, _warnings(facts), facts.tls, facts.password]
    return found, [each for each in says if each is not None]


def known_of(owner: Owner, ordinal: int, before: Manifest) -> Manifest:
    """Return what the status knows of a broker. One from before a status had several names the first one's ids."""
    pod = owner.pod(ordinal)
    known: Manifest = next((each for each in before.get("brokers") or [] if each.get("pod") == pod), {})
    if ordinal == 0:
        return {"storageId": before.get("storageId"), "dataId": before.get("dataId"), **known}
    return known


def _broker(owner: Owner, seen: Seen, before: Manifest) -> Manifest:
    known, pod = known_of(owner, seen.ordinal, before), seen.pod or {"metadata": {}}
    storage = storage_id(owner, seen)
    size = (seen.claim or {}).get("status", {}).get("capacity", {}).get("storage")
    found = {
        "pod": owner.pod(seen.ordinal),
        "ready": seen.pod is not None and is_pod_ready(seen.pod),
        "node": pod.get("spec", {}).get("nodeName"),
        "revision": pod["metadata"].get("labels", {}).get("controller-revision-hash"),
        "storageId": storage or known.get("storageId"),
        "storageSize": size,
        "dataId": _data_id(known, storage, seen.broker),
    }
    return {key: value for key, value in found.items() if value is not None}


def storage_id(owner: Owner, seen: Seen) -> str | None:
    """Return the volume's identity; with emptyDir it is the pod's."""
    holder = seen.claim if owner.spec.storage.mode == "pvc" else seen.pod
    if holder is None or "deletionTimestamp" in holder["metadata"]:
        return None
    return str(holder["metadata"]["uid"])


def _ready(owner: Owner, plan: Plan, facts: Facts, loss: Says | None) -> Says:
    """Return whether the Cluster serves. What could not be applied matters only while it does not."""
    brokers = facts.of(plan)
    if not plan.ordinals:
        return Says("Ready", "False", "Stopped", "spec.replicas is 0; the volume is kept")
    if any(each.broker is None for each in brokers):
        return Says("Ready", "False", *_not_serving(brokers, facts))
    if facts.has_endpoint is False:
        return Says(
            "Ready", "False", "NoEndpoint", f"the Service '{owner.name}' leads to no ready pod; check its selector"
        )
    if loss is not None and waits_after_loss(owner):
        return Says("Ready", "False", "DataLost", loss.message)
    return Says("Ready", "True", "Serving")


def _not_serving(brokers: list[Seen], facts: Facts) -> tuple[str, str]:
    """Return why a broker does not serve; first what keeps its pod from starting."""
    lacking = _lacking(facts)
    if lacking is not None:
        return lacking.reason, lacking.message
    if any(each.pod is None for each in brokers):
        if facts.refused:
            return "ApplyRefused", _refusals(facts)
        return "Starting", "the pod is being made"
    troubles = [trouble for each in brokers if (trouble := pod_trouble(each.pod or {}))]
    starting = ("Starting", "the broker is starting; a long replay takes its time")
    return troubles[0] if troubles else facts.problem or starting


def _lacking(facts: Facts) -> Says | None:
    """Return what a new pod waits for: the kubelet says only in events that a Secret to mount is missing."""
    told = [each for each in (facts.tls, facts.password) if each is not None and each.reason in NEEDED]
    return told[0] if told else None


def _applied(facts: Facts) -> Says:
    if facts.refused:
        return Says("Applied", "False", "ApplyRefused", _refusals(facts))
    return Says("Applied", "True", "Applied")


def _refusals(facts: Facts) -> str:
    return "; ".join(f"{name}: {why}" for name, why in facts.refused.items())


def pod_trouble(pod: Manifest) -> tuple[str, str] | None:
    """Return why a pod does not run, with the remedy."""
    spec, found = pod.get("spec", {}), pod.get("status", {})
    restoring = _restoring(found)
    if restoring is not None:
        return restoring
    for each in found.get("containerStatuses", []):
        waiting = each.get("state", {}).get("waiting") or {}
        reason, message = waiting.get("reason", ""), waiting.get("message", "")
        if reason in PULL_REASONS:
            image = _image_of(spec.get("containers", []), each.get("name"))
            return "ImagePullFailed", f"the image '{image}' cannot be pulled; correct its name: {reason}: {message}"
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


def _restoring(found: Manifest) -> tuple[str, str] | None:
    """Return how the restore stands that comes before the broker; None when it has ended well, or cannot begin yet."""
    for each in found.get("initContainerStatuses", []):
        state, last = each.get("state", {}), each.get("lastState", {})
        ended = state.get("terminated") or last.get("terminated") or {}
        if each.get("name") != RESTORE or (state.get("terminated") or {}).get("exitCode") == 0:
            continue
        if ended.get("exitCode"):
            words = (ended.get("message") or "").strip().splitlines()[-1:]
            return (
                "RestoreFailed",
                f"the backup cannot be restored: {''.join(words).removeprefix('penstock: ')[:1_000]}",
            )
        if "running" in state:
            return "Restoring", "the data directory is being restored from the backup"
        waiting = state.get("waiting") or {}
        if waiting.get("reason") in PULL_REASONS | {"CreateContainerConfigError", "CreateContainerError"}:
            return "RestoreFailed", f"{waiting['reason']}: {waiting.get('message', '')}"
    return None


def restored(plan: Plan, facts: Facts, before: Manifest, time: str) -> Manifest | None:
    """Return the status of the restore: what it was, or what the pod's init container reports now.

    The command says first whether it restored, so that a report that is cut off says it too.
    """
    known: Manifest | None = before.get("restore")
    if known is not None or plan.restore is None:
        return known
    for seen in facts.brokers:
        for each in (seen.pod or {}).get("status", {}).get("initContainerStatuses", []):
            ended = each.get("state", {}).get("terminated") or {}
            if each.get("name") == RESTORE and ended.get("exitCode") == 0:
                was_kept = re.search(r'"restored": ?false', str(ended.get("message") or "")[:4_096]) is not None
                return {"source": str(plan.restore), "restored": not was_kept, "at": time}
    return None


def _image_of(containers: list[Manifest], name: str | None) -> str:
    """Return the image of a container, or of the only one."""
    found = [each for each in containers if name is None or each.get("name", name) == name]
    return str(found[0].get("image", "")) if found else ""


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
    return "Starting" if ready.reason in {"Starting", "Restoring", "BrokerUnreachable"} else "Failed"


def _storage(facts: Facts) -> Says:
    if facts.growth:
        return Says("StorageHealthy", "False", *facts.growth)
    corruption = [text for each in facts.brokers if each.broker for text in each.broker.corruption]
    if corruption:
        return Says("StorageHealthy", "False", "Corrupt", "; ".join(corruption))
    for each in facts.brokers:
        phase = (each.claim or {}).get("status", {}).get("phase")
        if phase in {"Pending", "Lost"}:
            return Says("StorageHealthy", "False", f"Volume{phase}", f"the volume claim is {phase}")
    return Says("StorageHealthy", "True", "Healthy")


def waits_after_loss(owner: Owner) -> bool:
    """Return whether a loss must be acknowledged: not if the volume goes with every pod, by the user's choice."""
    return owner.spec.storage.loss_policy == "Manual" and owner.spec.storage.mode == "pvc"


def _data_id(known: Manifest, storage: str | None, broker: BrokerFacts | None) -> str | None:
    """Return the data id. On another volume it is read again: the changed volume already reports that loss."""
    if broker is not None and broker.data_id:
        return broker.data_id
    is_replaced = storage is not None and known.get("storageId") not in {None, storage}
    return None if is_replaced else known.get("dataId")


def _loss(owner: Owner, facts: Facts, before: Manifest, annotations: Manifest) -> Says | None:
    """Return the loss, until a user acknowledges it by the id that the message names."""
    for each in facts.brokers:
        found = _loss_of(owner, each, known_of(owner, each.ordinal, before))
        if found is not None:
            return found
    told = next((each for each in before.get("conditions", []) if each.get("type") == "DataLost"), None)
    if told is None:
        return None
    id_ = "dataId" if told["reason"] == "DataReplaced" else "storageId"
    ids = {known_of(owner, each.ordinal, before).get(id_) for each in facts.brokers}
    if annotations.get(LOSS_SEEN_ANNOTATION) in ids - {None}:
        return None
    return Says("DataLost", "True", told["reason"], told["message"])


def _loss_of(owner: Owner, seen: Seen, known: Manifest) -> Says | None:
    """Return the loss of one broker that has another volume or another data directory than it had."""
    volume, directory = known.get("storageId"), known.get("dataId")
    storage, data = storage_id(owner, seen), seen.broker.data_id if seen.broker else ""
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
    return None


def _warnings(facts: Facts) -> Says:
    if facts.missing:
        kinds = ", ".join(facts.missing)
        return Says(
            "NoWarnings", "False", "KindsMissing", f"this Kubernetes has no {kinds}; install them or turn it off"
        )
    return Says("NoWarnings", "True", "NoWarnings")
