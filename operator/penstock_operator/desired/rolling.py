"""Decides which pod of an old revision is replaced next: one at a time, and none that serves while another does not."""

from collections.abc import Sequence

from penstock_operator.desired.cluster_status import Seen, is_pod_ready

REVISION_LABEL = "controller-revision-hash"


def next_to_replace(brokers: Sequence[Seen], revision: str) -> Seen | None:
    """Return the broker whose pod is to be replaced now; None when all are new, or when it must wait."""
    pods = [each for each in brokers if each.pod is not None]
    if any("deletionTimestamp" in (each.pod or {})["metadata"] for each in pods):
        return None
    old = [each for each in pods if _revision(each) != revision]
    failing = [each for each in old if not _is_ready(each)]
    if failing:
        return failing[0]
    are_others_ready = all(_is_ready(each) for each in brokers)
    return old[0] if old and are_others_ready else None


def _is_ready(seen: Seen) -> bool:
    return seen.pod is not None and is_pod_ready(seen.pod)


def _revision(seen: Seen) -> str:
    labels = (seen.pod or {"metadata": {}})["metadata"].get("labels", {})
    return str(labels.get(REVISION_LABEL, ""))
