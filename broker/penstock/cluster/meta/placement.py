"""Where replicas and leaders of shards are: decided from counts alone, one small step after another.

Each step leaves every shard with at least the replicas that it had, or with as many as are wanted, and every choice is
the same on every broker. A new replica must be in sync before the next step of its shard is asked for.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.cluster.record import BrokerName

Placement = Mapping[str, tuple[BrokerName, ...]]
"""The brokers of each shard."""
REPLICA_COUNTS: Final = (1, 3, 5)
"""An even number of replicas survives no more brokers than the odd number below it."""


@dataclass(frozen=True, slots=True)
class AddReplica:
    shard: str
    broker: BrokerName


@dataclass(frozen=True, slots=True)
class RemoveReplica:
    shard: str
    broker: BrokerName


@dataclass(frozen=True, slots=True)
class MoveLeader:
    shard: str
    broker: BrokerName


PlacementStep = AddReplica | RemoveReplica


@dataclass(frozen=True, slots=True)
class Brokers:
    """The brokers that may get replicas, and how many replicas a shard is to have."""

    usable: frozenset[BrokerName]
    replica_count: int
    drained: frozenset[BrokerName] = frozenset()
    """They get replicas of new shards only where the others are too few: with fewer replicas, less would survive."""

    @property
    def wanted(self) -> int:
        """Return how many replicas a shard can have: as many as are wanted, if there are so many brokers."""
        return max((count for count in REPLICA_COUNTS if count <= min(self.replica_count, len(self.usable))), default=0)


def place(placement: Placement, brokers: Brokers) -> tuple[BrokerName, ...]:
    """Return the brokers of a new shard: those with the fewest replicas."""
    load = _load(placement, brokers)
    every = Brokers(brokers.usable | brokers.drained, brokers.replica_count)
    by_rank = sorted(every.usable, key=lambda broker: (broker in brokers.drained, load[broker], broker))
    return tuple(sorted(by_rank[: every.wanted]))


def next_step(placement: Placement, brokers: Brokers) -> PlacementStep | None:
    """Return the next step towards the wanted placement; None when it is reached.

    A shard first gets the replicas that it lacks on usable brokers; then it loses the replicas that are too many; then
    replicas move from full brokers to empty ones.
    """
    if not brokers.usable:
        return None
    return _missing(placement, brokers) or _surplus(placement, brokers) or _uneven(placement, brokers)


def apply_step(placement: Placement, step: PlacementStep) -> dict[str, tuple[BrokerName, ...]]:
    """Return the placement after a step."""
    held = placement[step.shard]
    if isinstance(step, AddReplica):
        return {**placement, step.shard: tuple(sorted((*held, step.broker)))}
    return {**placement, step.shard: tuple(broker for broker in held if broker != step.broker)}


def next_leader(
    placement: Placement,
    leaders: Mapping[str, BrokerName],
    in_sync: Mapping[str, frozenset[BrokerName]],
    brokers: Brokers,
) -> MoveLeader | None:
    """Return the next hand-over that spreads leaders evenly; None when no single one does.

    A leader moves to a replica in sync on a usable broker that leads at least two shards less, or from a broker that
    is to be left to any.
    """
    led = Counter(dict.fromkeys(brokers.usable, 0))
    led.update(broker for broker in leaders.values() if broker in brokers.usable)
    moves: list[tuple[int, str, BrokerName]] = []
    for shard, leader in leaders.items():
        able = in_sync.get(shard, frozenset()).intersection(placement.get(shard, ()), brokers.usable) - {leader}
        for broker in able:
            gain = led[leader] - led[broker] if leader in brokers.usable else len(leaders) + 1 - led[broker]
            if gain >= 2 or leader not in brokers.usable:
                moves.append((-gain, shard, broker))
    if not moves:
        return None
    _, shard, broker = min(moves)
    return MoveLeader(shard, broker)


def _missing(placement: Placement, brokers: Brokers) -> PlacementStep | None:
    """Return a step that adds a replica to a shard with too few of them on usable brokers."""
    load = _load(placement, brokers)
    for shard, held in sorted(placement.items()):
        kept = brokers.usable.intersection(held)
        if len(kept) < brokers.wanted:
            return AddReplica(shard, min(brokers.usable - kept, key=lambda broker: (load[broker], broker)))
    return None


def _surplus(placement: Placement, brokers: Brokers) -> PlacementStep | None:
    """Return a step that removes a replica from a shard that has enough without it."""
    load = _load(placement, brokers)
    for shard, held in sorted(placement.items()):
        left = [broker for broker in held if broker not in brokers.usable]
        if left:
            return RemoveReplica(shard, min(left))
        if len(held) > brokers.wanted:
            return RemoveReplica(shard, max(held, key=lambda broker: (load[broker], broker)))
    return None


def _uneven(placement: Placement, brokers: Brokers) -> PlacementStep | None:
    """Return the first half of a move: the second one follows, because the shard has one replica too many then."""
    load = _load(placement, brokers)
    moves: list[tuple[int, str, BrokerName]] = []
    for shard, held in placement.items():
        full = max((load[broker] for broker in held), default=0)
        moves += [
            (load[broker] - full, shard, broker)
            for broker in brokers.usable.difference(held)
            if full - load[broker] >= 2
        ]
    if not moves:
        return None
    _, shard, broker = min(moves)
    return AddReplica(shard, broker)


def _load(placement: Placement, brokers: Brokers) -> Counter[BrokerName]:
    """Count the replicas of each usable broker."""
    load = Counter(dict.fromkeys(brokers.usable, 0))
    load.update(broker for held in placement.values() for broker in held if broker in brokers.usable)
    return load
