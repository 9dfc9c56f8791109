"""Faults for a cluster of three brokers, drawn from a seed.

A fault names the brokers that it hits and its times; what it does to processes and networks is not known here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import Final

__all__ = ["DAMAGES", "DISK_KINDS", "NETWORK_KINDS", "Fault", "Kind", "Link", "Pace", "draw", "kinds_of"]

Link = tuple[str, str]
"""A direction between two brokers: packets go from the first to the second."""
CALM_S: Final = (0.5, 5.0)
"""The time between the end of a fault and the next one."""


class Kind(StrEnum):
    """Kinds of faults. `target` is a broker that leads the virtual host of the fault, or one that follows."""

    KILL_LEADER = "kill-leader"
    KILL_FOLLOWER = "kill-follower"
    KILL_ALL = "kill-all"
    RESTART = "restart"
    """A stop as by an orchestrator, and a start."""
    PAUSE = "pause"
    """The process stands still, and goes on later."""
    HALVES = "halves"
    """The target is cut off from both others."""
    ONE_WAY = "one-way"
    """The packets from the target to another one are dropped."""
    DEAF = "deaf"
    """The packets from both others to the target are dropped."""
    BRIDGE = "bridge"
    """The target and another one do not reach each other; both reach the third."""
    NO_MAJORITY = "no-majority"
    """No broker reaches any other."""
    RING = "ring"
    """The packets of each broker reach only the next one."""
    POWER = "power"
    """The target's machine loses its power, and its disk what was not synced."""
    POWER_OF_ALL = "power-of-all"
    FULL_DISK = "full-disk"
    """The target's disk has no space, until something else on it is deleted."""
    CALM = "calm"
    """Nothing happens, which is no fault: messages must not be lost by that either."""
    CORRUPT = "corrupt"
    """The target is killed, and a byte of one of its logs is changed before its start."""
    TRUNCATE = "truncate"
    """The target is killed, and a file of one of its logs is cut short before its start."""


NETWORK_KINDS: Final = frozenset({Kind.HALVES, Kind.ONE_WAY, Kind.DEAF, Kind.BRIDGE, Kind.NO_MAJORITY, Kind.RING})
DISK_KINDS: Final = frozenset({Kind.POWER, Kind.POWER_OF_ALL, Kind.FULL_DISK})
"""Each broker has a file system of its own for them."""
DAMAGES: Final = frozenset({Kind.CORRUPT, Kind.TRUNCATE})
"""A leader drops a message that its disk has changed, so they are not drawn unless they are asked for."""
SECONDS: Final = {
    Kind.KILL_LEADER: (0.0, 6.0),
    Kind.KILL_FOLLOWER: (0.0, 6.0),
    Kind.KILL_ALL: (0.0, 2.0),
    Kind.RESTART: (0.0, 3.0),
    Kind.CORRUPT: (0.0, 3.0),
    Kind.TRUNCATE: (0.0, 3.0),
    Kind.PAUSE: (1.0, 9.0),
    Kind.POWER: (0.0, 6.0),
    Kind.POWER_OF_ALL: (0.0, 2.0),
    Kind.FULL_DISK: (2.0, 9.0),
    Kind.CALM: (1.0, 3.0),
}
"""How long a fault lasts, at least and at most; kinds that are not here are cuts."""
CUT_S: Final = (2.0, 12.0)
AT_LEADER: Final = 0.0
"""The pick that is the leader for each kind that may hit any broker."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Times of faults that all hit leaders: how long each lasts, at least and at most.

    All replicas are in sync again before the next one.
    """

    seconds: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: of the virtual host number `vhost`, for `seconds`, and the quiet time after it."""

    kind: Kind
    vhost: int
    picks: tuple[float, float]
    """Choose the target and the other broker among those that fit."""
    seconds: float
    calm_s: float
    waits: bool
    """Whether all replicas are in sync again before the next one."""

    def target(self, leader: str, brokers: Sequence[str]) -> str:
        """Return the broker that is hit."""
        others = [broker for broker in brokers if broker != leader]
        match self.kind:
            case Kind.KILL_LEADER | Kind.RESTART:
                return leader
            case Kind.KILL_FOLLOWER | Kind.CORRUPT | Kind.TRUNCATE:
                return _pick(others, self.picks[0])
        # Each of the three is hit in turn, the leader more often: cuts around it are the hard ones.
        return _pick([leader, *brokers], self.picks[0])

    def cuts(self, target: str, brokers: Sequence[str]) -> Iterator[Link]:
        """Yield the directions that are cut."""
        others = [broker for broker in brokers if broker != target]
        other = _pick(others, self.picks[1])
        match self.kind:
            case Kind.HALVES:
                yield from (link for each in others for link in ((target, each), (each, target)))
            case Kind.ONE_WAY:
                yield target, other
            case Kind.DEAF:
                yield from ((each, target) for each in others)
            case Kind.BRIDGE:
                yield from ((target, other), (other, target))
            case Kind.NO_MAJORITY:
                yield from ((one, two) for one in brokers for two in brokers if one != two)
            case Kind.RING:
                yield from ((two, one) for one, two in zip(brokers, [*brokers[1:], brokers[0]], strict=True))

    def hits(self, target: str, brokers: Sequence[str]) -> set[str]:
        """Return the brokers whose virtual hosts may need another leader."""
        if self.kind in (Kind.KILL_ALL, Kind.NO_MAJORITY, Kind.RING, Kind.POWER_OF_ALL):
            return set(brokers)
        if self.kind == Kind.CALM:
            return set()
        if self.kind in (Kind.ONE_WAY, Kind.BRIDGE):
            return {broker for link in self.cuts(target, brokers) for broker in link}
        return {target}


def draw(random: Random, kinds: Sequence[Kind], vhost_count: int, pace: Pace | None = None) -> Iterator[Fault]:
    """Yield faults without end; each run through all kinds has another order. They hit any broker without a pace."""
    number = 0
    while True:
        for kind in random.sample(kinds, len(kinds)):
            least, most = SECONDS.get(kind, CUT_S) if pace is None else pace.seconds
            drawn = Fault(
                kind,
                number % vhost_count,
                (random.random(), random.random()),
                random.uniform(least, most),
                random.uniform(*CALM_S),
                waits=random.random() < 0.5,
            )
            yield drawn if pace is None else replace(drawn, picks=(AT_LEADER, drawn.picks[1]), calm_s=0.0, waits=True)
            number += 1


def kinds_of(text: str) -> list[Kind]:
    """Return the kinds of a text, separated by commas; all but damages for an empty one. Raises ValueError."""
    if not text:
        return [kind for kind in Kind if kind not in DAMAGES]
    return [Kind(word.strip()) for word in text.split(",")]


def _pick(found: Sequence[str], at: float) -> str:
    return found[int(at * len(found))]
