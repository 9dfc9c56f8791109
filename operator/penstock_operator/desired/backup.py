"""Decides the next step and the status of a Backup from its status, its Job and the pods of the Job. Pure.

A Backup goes from Pending to Running to Completed or Failed, and never back: a finished one is never run again. Text of
a pod is bytes from outside: it is bounded, and a report that cannot be read costs the sizes and no more, as the exit
code says whether the backup is whole.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from penstock_operator.desired.cluster_status import pod_trouble
from penstock_operator.desired.conditions import Says

Manifest = dict[str, Any]
# Kubernetes keeps 4 KiB of a termination message; more than that is not read.
REPORT_LENGTH_MAX: Final = 16_384
SENTENCE_LENGTH_MAX: Final = 1_000
_COUNT_MAX: Final = 2**53


class Phase(StrEnum):
    """The phase of a Backup."""

    PENDING = "Pending"
    RUNNING = "Running"
    COMPLETED = "Completed"
    FAILED = "Failed"


ENDED: Final = frozenset({Phase.COMPLETED, Phase.FAILED})


@dataclass(frozen=True, slots=True)
class Outcome:
    """The state of a Job. `message` is what its pod said, or why it does not run."""

    phase: Phase
    reason: str = ""
    message: str = ""
    ended_at: str = ""
    report: Manifest = field(default_factory=dict)


def phase_of(manifest: Mapping[str, Any]) -> Phase:
    """Return the phase; Pending for an object that nothing was written of yet."""
    told = (manifest.get("status") or {}).get("phase")
    return Phase(told) if told in {each.value for each in Phase} else Phase.PENDING


def has_ended(manifest: Mapping[str, Any]) -> bool:
    return phase_of(manifest) in ENDED


def outcome(job: Manifest, pods: Iterable[Manifest]) -> Outcome:
    """Return the outcome of a Job, by its own conditions; its pods only add what they said."""
    ended = _condition(job, "Complete") or _condition(job, "Failed")
    last = _last(pods)
    if ended is None:
        trouble = pod_trouble(last) if last is not None else None
        reason, message = trouble or ("Running", "")
        return Outcome(Phase.RUNNING, reason, message)
    at = str(ended.get("lastTransitionTime") or "")
    said = _said(last)
    if ended["type"] == "Complete":
        report = read_report(said)
        message = "" if report else "the pod's report could not be read, so that its size is not known"
        return Outcome(Phase.COMPLETED, "Completed", message, at, report)
    if ended.get("reason") == "DeadlineExceeded":
        trouble = pod_trouble(last) if last is not None else None
        why = f": {trouble[1]}" if trouble else ""
        return Outcome(Phase.FAILED, "DeadlineExceeded", f"it took longer than deadlineSeconds{why}", at)
    message = sentence(said) or str(ended.get("message") or "the pod failed without a word; see the Job's log")
    return Outcome(Phase.FAILED, "BackupFailed", message, at)


def read_report(text: str) -> Manifest:
    """Return the fields of the status from the report of `penstock backup download`; empty if it is none."""
    if len(text) > REPORT_LENGTH_MAX:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    vhosts = found.get("vhosts")
    read: Manifest = {
        "bytes": _count(found.get("bytes")),
        "vhosts": len(vhosts) if isinstance(vhosts, list) else _count(vhosts),
        "sha256": _word(found.get("sha256"), 64),
        "dataId": _word(found.get("data_id"), 64),
        "brokerVersion": _word(found.get("version"), 64),
    }
    return {key: value for key, value in read.items() if value is not None}


def sentence(text: str) -> str:
    """Return the last line of a pod's log, without the name of the program."""
    lines = [each.strip() for each in text[-REPORT_LENGTH_MAX:].splitlines() if each.strip()]
    last = lines[-1].removeprefix("penstock: ") if lines else ""
    return "".join(each if each.isprintable() else "?" for each in last[:SENTENCE_LENGTH_MAX])


def says(phase: Phase, reason: str, message: str) -> list[Says]:
    """Return the conditions. Completed is Unknown until the end."""
    completed = {Phase.COMPLETED: "True", Phase.FAILED: "False"}.get(phase, "Unknown")
    ready = "True" if phase is Phase.COMPLETED else "False"
    assert completed in {"True", "False", "Unknown"}
    return [Says("Ready", ready, reason, message), Says("Completed", completed, reason, message)]  # type: ignore[arg-type]


def newest_completed(backups: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    """Return when the newest completed Backup of each Cluster ended, by its namespace and name."""
    found: dict[tuple[str, str], str] = {}
    for each in backups:
        at = str((each.get("status") or {}).get("completedAt") or "")
        if phase_of(each) is not Phase.COMPLETED or not at:
            continue
        place = (each["metadata"].get("namespace", ""), each.get("spec", {}).get("clusterRef", {}).get("name", ""))
        found[place] = max(found.get(place, ""), at)
    return found


def _condition(job: Manifest, type_: str) -> Manifest | None:
    conditions = (job.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each.get("type") == type_ and each.get("status") == "True"), None)


def _last(pods: Iterable[Manifest]) -> Manifest | None:
    """Return the pod of the last attempt. The one that succeeded is the last one, whatever the clocks say."""

    def order(pod: Manifest) -> tuple[bool, str]:
        is_whole = (pod.get("status") or {}).get("phase") == "Succeeded"
        return is_whole, str(pod["metadata"].get("creationTimestamp") or "")

    return max(pods, key=order, default=None)


def _said(pod: Manifest | None) -> str:
    for each in ((pod or {}).get("status") or {}).get("containerStatuses") or []:
        ended = (each.get("state") or {}).get("terminated") or {}
        return str(ended.get("message") or "")
    return ""


def _count(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _COUNT_MAX
    return value if is_count else None


def _word(value: Any, length_max: int) -> str | None:
    is_word = isinstance(value, str) and 0 < len(value) <= length_max and value.isprintable()
    return value if is_word else None
