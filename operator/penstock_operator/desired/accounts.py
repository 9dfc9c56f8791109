"""Decides which accounts and tags of a broker an object may name.

No object touches the operator's own account: whoever changes it locks the operator out. Tags above
`management` open the whole broker, so that only namespaces that the Cluster names may give them or take them over.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from penstock_operator.api import GrantSpec, TopologySpec, UserSpec
from penstock_operator.desired.naming import ADMINISTRATOR

# The broker accepts it from its own machine only.
GUEST: Final = "guest"
UNPRIVILEGED: Final = frozenset({"management"})


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal for the object's condition."""

    reason: str
    message: str


def refused_account(spec: TopologySpec, account: str) -> Refused | None:
    """Return why an object may not name its user; `account` is the operator's own, from the Cluster's Secret."""
    own = {account, ADMINISTRATOR}
    if isinstance(spec, UserSpec) and spec.name in {*own, GUEST}:
        return Refused(
            "ReservedName",
            f"user '{spec.name}' belongs to the operator or to the broker, and no User may change it;"
            " choose another name",
        )
    if isinstance(spec, GrantSpec) and spec.user in own:
        return Refused(
            "ReservedName",
            f"user '{spec.user}' is the operator's own account, whose permissions no object may change;"
            " choose another user",
        )
    return None


def takes_over(deleted: TopologySpec, other: TopologySpec, *, is_paused: bool, may_administer: bool) -> bool:
    """Return whether another object takes over the thing of one that is deleted.

    A user or a permission must not stay as it was: it is deleted if the other one would not change it.
    """
    if not other.adopt:
        return False
    if not isinstance(deleted, UserSpec | GrantSpec):
        return True
    tags = deleted.tags if isinstance(deleted, UserSpec) else []
    is_refused = refused_tags(other, tags, "", may_administer=may_administer) is not None
    return not (is_refused or is_paused or other.prevent_update)


def refused_tags(
    spec: TopologySpec, on_broker: Iterable[str], namespace: str, *, may_administer: bool
) -> Refused | None:
    """Return why an object may not give its tags, or take over a user with the tags `on_broker`."""
    if may_administer or not isinstance(spec, UserSpec):
        return None
    remedy = "allow it in the Cluster's spec.topology.administratorsFrom"
    given = sorted({*spec.tags} - UNPRIVILEGED)
    if given:
        return Refused("TagsNotAllowed", f"namespace '{namespace}' may not give the tags {', '.join(given)}; {remedy}")
    held = sorted({*on_broker} - UNPRIVILEGED)
    if held:
        says = f"user '{spec.name}' has the tags {', '.join(held)} on the broker"
        return Refused("TagsNotAllowed", f"{says}, and namespace '{namespace}' may not take it over; {remedy}")
    return None
