"""Decides which operator acts, from Leases alone.

Each release has one Lease; the pod that holds and renews it is the release's. A Lease also names the namespaces that
its release watches. Of two releases that watch the same one, the first one acts and the later does nothing.

A pod marks its Lease before it acts and then reads the others again, so of two that mark theirs at the same time each
sees the other, and both give way. Only the older one tries again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from penstock_operator.desired.naming import FIELD_MANAGER

Manifest = dict[str, Any]
LEASE_SECONDS: Final = 15
WATCHES_ANNOTATION: Final = "penstock.dev/watches"
ACTING_ANNOTATION: Final = "penstock.dev/acting"
LABELS: Final = {"app.kubernetes.io/managed-by": FIELD_MANAGER, "penstock.dev/lease": "operator"}
SELECTOR: Final = ",".join(f"{key}={value}" for key, value in sorted(LABELS.items()))


class Step(Enum):
    """The next step of a pod with its Lease."""

    CREATE = "create"
    TAKE = "take"
    MARK = "mark"
    UNMARK = "unmark"
    RENEW = "renew"
    WAIT = "wait"
    ACT = "act"


@dataclass(frozen=True, slots=True)
class Claim:
    """A Lease of a release. Empty `watches` means all namespaces, an empty `holder` that no pod holds it."""

    namespace: str
    name: str
    created: str = ""
    holder: str = ""
    renewed: str = ""
    watches: frozenset[str] = frozenset()
    is_acting: bool = False

    @property
    def place(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def seniority(self) -> tuple[str, str, str]:
        return self.created, self.namespace, self.name


def claim_of(manifest: Manifest) -> Claim:
    metadata, spec = manifest["metadata"], manifest.get("spec", {})
    annotations = metadata.get("annotations", {})
    return Claim(
        metadata["namespace"],
        metadata["name"],
        metadata.get("creationTimestamp", ""),
        spec.get("holderIdentity") or "",
        spec.get("renewTime") or "",
        frozenset(each for each in annotations.get(WATCHES_ANNOTATION, "").split(",") if each),
        annotations.get(ACTING_ANNOTATION) == "true",
    )


def binding_of(claim: Claim) -> str:
    """Return the name of the ClusterRoleBinding that the chart makes for a release."""
    return f"{claim.name}-discovery-{claim.namespace}"


def decide(
    pod: str, mine: Claim | None, others: list[Claim], is_live: Callable[[Claim], bool], *, has_begun: bool
) -> tuple[Step, str]:
    """Return the next step, and why this pod does not act; the reason is empty while it may still."""
    if mine is None:
        return Step.CREATE, ""
    if mine.holder != pod:
        if mine.holder and is_live(mine):
            return Step.WAIT, f"pod '{mine.holder}' of this release acts"
        return Step.TAKE, ""
    if has_begun and mine.is_acting:
        return Step.RENEW, ""
    rivals = [each for each in others if each.place != mine.place and _overlap(each, mine) and is_live(each)]
    acting = next((each for each in rivals if each.is_acting), None)
    if mine.is_acting:
        return (Step.ACT, "") if acting is None else (Step.UNMARK, _reason(acting))
    first = acting or next((each for each in rivals if each.seniority < mine.seniority), None)
    return (Step.MARK, "") if first is None else (Step.RENEW, _reason(first))


def _overlap(one: Claim, other: Claim) -> bool:
    return not one.watches or not other.watches or bool(one.watches & other.watches)


def _reason(rival: Claim) -> str:
    return (
        f"the release '{rival.name}' in namespace '{rival.namespace}' watches the same namespaces and came first;"
        " uninstall one of the two, or give them different watchNamespaces"
    )


def lease(claim: Claim, now: str) -> Manifest:
    """Return the Lease of a claim, to create."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": claim.name,
            "namespace": claim.namespace,
            "labels": LABELS,
            "annotations": _annotations(claim),
        },
        "spec": {"leaseDurationSeconds": LEASE_SECONDS, **held(claim, now)["spec"], "acquireTime": now},
    }


def held(claim: Claim, now: str) -> Manifest:
    """Return the change that renews a Lease for the pod of a claim."""
    return {
        "metadata": {"annotations": _annotations(claim)},
        "spec": {"holderIdentity": claim.holder, "renewTime": now},
    }


def _annotations(claim: Claim) -> dict[str, str]:
    return {
        WATCHES_ANNOTATION: ",".join(sorted(claim.watches)),
        ACTING_ANNOTATION: str(claim.is_acting).lower(),
    }
