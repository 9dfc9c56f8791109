"""Which pod is replaced next, for one broker and for several."""

import pytest

from penstock_operator.desired.cluster_status import Seen
from penstock_operator.desired.rolling import next_to_replace
from support.kubernetes_fake import Manifest


def broker(ordinal: int, state: str) -> Seen:
    """Return a broker: old or new, and ready (the default), failing, ending or without a pod."""
    if state == "absent":
        return Seen(ordinal)
    revision, _, how = state.partition(" ")
    pod: Manifest = {"metadata": {"labels": {"controller-revision-hash": revision}}}
    if how == "ending":
        pod["metadata"]["deletionTimestamp"] = "now"
    pod["status"] = {"conditions": [{"type": "Ready", "status": "False" if how == "failing" else "True"}]}
    return Seen(ordinal, pod)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["new"], None),
        (["old"], 0),
        (["old failing"], 0),
        (["old ending"], None),
        (["absent"], None),
        (["new failing"], None),
        (["old", "old", "old"], 0),
        (["new", "old", "old"], 1),
        (["new failing", "old", "old"], None),
        (["new ending", "old", "old"], None),
        (["absent", "old", "old"], None),
        (["old", "old failing", "new"], 1),
        (["new", "new", "new"], None),
    ],
)
def test_pods_are_replaced_one_at_a_time_and_failing_ones_first(states: list[str], expected: int | None) -> None:
    found = next_to_replace([broker(ordinal, state) for ordinal, state in enumerate(states)], "new")

    assert (found.ordinal if found else None) == expected
