"""Decides what to do with the thing of a topology object, from the manifest, the broker's fields and the ownership.

An object owns a thing that it made or adopted, and only then. Exchanges, queues and streams cannot be changed, so that
a differing one is another thing: it is never owned, never changed and never deleted. A refusal comes with no other
action than giving up the ownership. Who may name what is decided in `desired.accounts`.
"""

from dataclasses import dataclass
from typing import Final, Literal

from penstock_operator.api import ExchangeSpec, QueueSpec, StreamSpec, TopologySpec, VHostSpec
from penstock_operator.desired.topology import Fields, described, drift

PASSWORD: Final = "password"
DEFAULT_VHOST: Final = "/"


@dataclass(frozen=True, slots=True)
class Owned:
    """The object's hold on the thing: the mark, whether it was in order before, and for this generation."""

    is_marked: bool = False
    was_made: bool = False
    is_known: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """Write the mark of ownership, before the broker is changed: a process that dies in between leaves no orphan."""


@dataclass(frozen=True, slots=True)
class Unmark:
    """Take the mark of ownership away."""


@dataclass(frozen=True, slots=True)
class Put:
    """Make or change the thing on the broker."""


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete the thing on the broker."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Write an event."""

    reason: Literal["Created", "Updated", "Adopted", "DriftRepaired", "LeftOnBroker", "Released"]
    message: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Report in the conditions why the manifest is not met, with the differing fields."""

    reason: Literal["Exists", "Drift", "Mismatch"]
    message: str
    drift: tuple[str, ...] = ()


Action = Mark | Unmark | Put | Remove | Tell | Refuse


def plan(spec: TopologySpec, found: Fields | None, owned: Owned, *, has_password: bool = True) -> list[Action]:
    """Return the actions that make the broker match, or a refusal. `has_password`: the broker takes the password."""
    if found is None:
        return _absent(spec, owned)
    if not owned.is_marked and not spec.adopt:
        return [Refuse("Exists", "the broker has one already; set spec.adopt to take it over, or choose another name")]
    differing = drift(spec, found)
    says = described(differing, spec, found)
    if not has_password:
        differing, says = [*differing, PASSWORD], "; ".join(filter(None, (says, "the password differs")))
    if not differing:
        if owned.is_marked:
            return []
        return [Mark(), Tell("Adopted", "the broker had one that matches, which now belongs to this object")]
    return _differing(spec, owned, tuple(differing), says)


def _absent(spec: TopologySpec, owned: Owned) -> list[Action]:
    mark: list[Action] = [] if owned.is_marked else [Mark()]
    if not owned.was_made:
        return [*mark, Put(), Tell("Created", "made on the broker")]
    if spec.prevent_update:
        return [Refuse("Drift", "it is gone from the broker, and spec.preventUpdate says to leave it so")]
    return [*mark, Put(), Tell("DriftRepaired", "it was gone from the broker and was made again")]


def _differing(spec: TopologySpec, owned: Owned, differing: tuple[str, ...], says: str) -> list[Action]:
    give_up: list[Action] = [Unmark()] if owned.is_marked and is_unchangeable(spec) else []
    if spec.prevent_update:
        message = f"{says}; spec.preventUpdate says to leave it so"
        return [*give_up, Refuse("Drift", message, differing)]
    if is_unchangeable(spec):
        message = f"the broker's cannot be changed into this: {says}; delete it there, or correct this"
        return [*give_up, Refuse("Mismatch", message, differing)]
    if not owned.is_marked:
        return [Mark(), Put(), Tell("Adopted", f"the broker had one, which now belongs to this object: {says}")]
    if owned.is_known:
        return [Put(), Tell("DriftRepaired", f"the broker differed from the manifest and was put right: {says}")]
    return [Put(), Tell("Updated", f"changed on the broker: {says}")]


def plan_removal(spec: TopologySpec, found: Fields | None) -> list[Action]:
    """Return the actions for an owner that is deleted, whose manifest says Delete."""
    if found is None:
        return []
    if isinstance(spec, VHostSpec) and spec.name == DEFAULT_VHOST:
        return [Tell("LeftOnBroker", f"vhost '{spec.name}' stays, because the operator logs in to it")]
    differing = drift(spec, found)
    if differing and is_unchangeable(spec):
        says = described(differing, spec, found)
        return [Tell("LeftOnBroker", f"the broker has a different one, which stays: {says}")]
    return [Remove()]


def is_unchangeable(spec: TopologySpec) -> bool:
    """Return whether the broker cannot change such a thing, so that a differing one is another thing."""
    return isinstance(spec, QueueSpec | StreamSpec | ExchangeSpec)
