"""Where the calls of a connection go: to its given addresses in turn, or to the leader that a broker named. Pure.

A broker of a cluster that does not lead a virtual host refuses its messages, and names the leader. That is a hint: it
may be old or wrong, and the broker that it names may be out of reach. So hints in a row are bounded, the given
addresses are gone back to, and a hint that led to no broker is passed over once, to let the other given addresses have
their turn.

A broker relays a call to the leader unless the call wants a refusal. A client that cannot reach a leader, as from
behind one forwarded port, has its calls relayed until another broker leads.

Each event names the address of the call that it is about. One about an address that was left already changes nothing.
"""

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from penstock.client.errors import UNAVAILABLE, from_status

__all__ = ["FOLLOWS", "LEADER", "Following", "Hint", "Step", "Wait", "answered", "ended", "hint_in"]

NOT_LEADER = "NOT_LEADER"
# Has a broker that does not lead refuse a call and name the leader; it relays the call without.
FOLLOWS = "penstock-follows"
# The address of the leader to which a broker has relayed a call.
LEADER = "penstock-leader"
# Hints that are followed without an answer between them.
HOPS_MAX = 4
TARGET_BYTES_MAX = 261
_TARGET = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]):[1-9][0-9]{0,4}")
# Of a broker that does not know where it is reached: a client would connect to its own machine.
_EVERYWHERE = re.compile(r"(?:0\.0\.0\.0|\[[0:]+\]):.*")


class Wait(Enum):
    """How long to wait before the next attempt."""

    NONE = "none"
    SHORT = "short"
    """Brokers answer, and one of them leads soon."""
    LONG = "long"


class Hint(NamedTuple):
    """The leader of a virtual host, at `target`, which is empty where no usable address was named."""

    vhost: str
    target: str


@dataclass(frozen=True, slots=True)
class Following:
    """Invariants: `at` is an index of `given`, which has an address; `leader` is not one of them."""

    given: tuple[str, ...]
    # Whether hints are followed.
    follows: bool = True
    # The given address that is in use, unless there is a leader.
    at: int = 0
    # An address in use because a broker named it; empty for none.
    leader: str = ""
    # The last address that could not be reached; empty once one has answered.
    unreached: str = ""
    # Whether calls are to be relayed, because it is a leader's.
    is_relayed: bool = False
    # Hints that were followed since the last answer.
    hops: int = 0
    # Given addresses in a row that could not be reached.
    failures: int = 0

    @property
    def current(self) -> str:
        return self.leader or self.given[self.at]

    @property
    def wants_refusals(self) -> bool:
        """Whether the broker is to name the leader, and not to relay calls to it."""
        return self.follows and not self.is_relayed

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """The metadata of calls that says so."""
        return ((FOLLOWS, "1"),) if self.wants_refusals else ()


class Step(NamedTuple):
    """The state after an event, and how long to wait before the next attempt."""

    following: Following
    wait: Wait


def hint_in(code: int, message: str, details: bytes) -> Hint | None:
    """Return the hint of a status that says that a broker does not lead; None for any other status."""
    if code != UNAVAILABLE or NOT_LEADER.encode() not in details:
        return None
    detail = from_status(code, message, details).detail
    if detail.reason != NOT_LEADER:
        return None
    target = detail.data.get("grpc", "")
    vhost = detail.data.get("vhost") or detail.data.get("name", "")
    return Hint(vhost, target if is_target(target) else "")


def is_target(text: str) -> bool:
    """Return whether a text from outside is a host and a port to connect to."""
    if len(text) > TARGET_BYTES_MAX or _TARGET.fullmatch(text) is None or _EVERYWHERE.fullmatch(text):
        return False
    return int(text.rpartition(":")[2]) < 2**16


def answered(following: Following, target: str, leader: str = "") -> Following:
    """Return the state after a broker has answered, whatever it has answered, unless that it does not lead.

    With a `leader`, that is where the call was relayed to.
    """
    if target != following.current or not (following.unreached or following.hops or following.failures):
        return following
    if following.is_relayed and leader == following.unreached:
        return replace(following, hops=0, failures=0)
    return replace(following, unreached="", is_relayed=False, hops=0, failures=0)


def ended(following: Following, target: str, code: int, hint: Hint | None, *, is_unsent: bool) -> Step:
    """Return the next step after a call has ended with a status, which has a hint or not.

    `is_unsent` says that there was no connection to send it by.
    """
    if target != following.current:
        return Step(following, Wait.NONE)
    if hint is not None:
        return _refused(replace(following, is_relayed=False, failures=0), target, hint.target)
    if code != UNAVAILABLE:
        return Step(answered(following, target), Wait.LONG)
    if not is_unsent:
        return Step(replace(_left(following), is_relayed=False), Wait.LONG)
    if following.leader:
        return Step(replace(_left(following), unreached=target, is_relayed=True), Wait.NONE)
    failures = following.failures + 1
    # Each of the given addresses is tried before the wait.
    is_round = failures >= len(following.given)
    was_named = following.hops > 0
    moved = replace(_left(following), unreached=target, is_relayed=was_named, failures=0 if is_round else failures)
    return Step(moved, Wait.LONG if is_round else Wait.NONE)


def _refused(following: Following, target: str, leader: str) -> Step:
    if not following.follows or leader in ("", target):
        return Step(_left(following), Wait.SHORT)
    if leader == following.unreached:
        return Step(replace(_left(following), unreached=""), Wait.SHORT)
    if following.hops >= HOPS_MAX:
        return Step(replace(_left(following), hops=0), Wait.SHORT)
    hops = following.hops + 1
    if leader in following.given:
        return Step(replace(following, at=following.given.index(leader), leader="", hops=hops), Wait.NONE)
    return Step(replace(following, leader=leader, hops=hops), Wait.NONE)


def _left(following: Following) -> Following:
    """Leave the address in use: a leader for the given address that named it, and that one for the next."""
    if following.leader:
        return replace(following, leader="")
    return replace(following, at=(following.at + 1) % len(following.given))
