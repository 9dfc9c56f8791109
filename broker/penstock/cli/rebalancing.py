"""Which leaders or replicas move so that the brokers have as many each: decided from the cluster's status alone.

A leader moves only to a broker with a replica in sync. Where no broker that leads few has one of a broker that leads
many, leaders move over brokers in between.
"""

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

__all__ = ["LedShard", "Move", "rebalance", "spread_replicas"]


@dataclass(frozen=True, slots=True)
class LedShard:
    """The leader of a virtual host, and the brokers that could lead it."""

    leader: str
    in_sync: frozenset[str]


@dataclass(frozen=True, slots=True)
class Move:
    vhost: str
    broker: str
    to: str


def rebalance(led: Mapping[str, LedShard], usable: Collection[str]) -> list[Move]:
    """Return the moves after which no further ones would spread leaders more evenly, in their order.

    `usable` are the brokers that are alive and not drained. Leaders of others stay where they are. Each step takes the
    shortest way from a broker that leads at least two more than another one, so it costs the fewest moves.
    """
    leaders = {vhost: shard.leader for vhost, shard in led.items() if shard.leader in usable}
    moves: list[Move] = []
    while way := _shortest_way(leaders, led, usable):
        for move in way:
            leaders[move.vhost] = move.to
        moves += way
    return _without_detours(led, moves)


def spread_replicas(placed: Mapping[str, Collection[str]], usable: Collection[str]) -> list[Move]:
    """Return the moves of replicas after which each broker has as many as another one, give or take one.

    Replicas of virtual hosts with one at another broker stay where they are, and count. While a broker has at least two
    more than another one, it has one of a virtual host that the other one lacks.
    """
    held = {vhost: set(brokers) for vhost, brokers in placed.items()}
    free = sorted(vhost for vhost, brokers in held.items() if brokers.issubset(usable))
    counts = Counter(dict.fromkeys(usable, 0))
    counts.update(broker for brokers in held.values() for broker in brokers if broker in counts)
    moves: list[Move] = []
    while move := _widest_move(held, free, counts):
        held[move.vhost] = held[move.vhost] - {move.broker} | {move.to}
        counts[move.broker] -= 1
        counts[move.to] += 1
        moves.append(move)
    return moves


def _widest_move(held: Mapping[str, Collection[str]], free: Sequence[str], counts: Mapping[str, int]) -> Move | None:
    """Return a move from a broker to one that has at least two replicas less, as many less as there are."""
    pairs = [(counts[to] - counts[full], full, to) for full, to in permutations(counts, 2)]
    for gap, full, to in sorted(pairs):
        if gap > -2:
            return None
        found = next((vhost for vhost in free if full in held[vhost] and to not in held[vhost]), None)
        if found is not None:
            return Move(found, full, to)
    return None


def _shortest_way(leaders: Mapping[str, str], led: Mapping[str, LedShard], usable: Collection[str]) -> list[Move]:
    """Return moves that take one leader from a full broker to one that leads at least two less; none if there are."""
    counts = Counter(dict.fromkeys(usable, 0))
    counts.update(leaders.values())
    ways: list[tuple[int, int, list[Move]]] = []
    for full in sorted(usable):
        came_by = _reachable(full, leaders, led, usable)
        able = [broker for broker in came_by if counts[full] - counts[broker] >= 2]
        ways += [(counts[broker] - counts[full], len(way), way) for broker in able if (way := _way(came_by, broker))]
    if not ways:
        return []
    return min(ways, key=lambda each: (each[1], each[0], [(move.vhost, move.to) for move in each[2]]))[2]


def _reachable(
    full: str, leaders: Mapping[str, str], led: Mapping[str, LedShard], usable: Collection[str]
) -> dict[str, Move]:
    """Return for each broker that leaders of one can come to, over others, the last move on the shortest way there."""
    came_by: dict[str, Move] = {}
    waiting = deque([full])
    while waiting:
        broker = waiting.popleft()
        for vhost in sorted(vhost for vhost, leader in leaders.items() if leader == broker):
            for to in sorted(led[vhost].in_sync.intersection(usable)):
                if to != full and to not in came_by and to != broker:
                    came_by[to] = Move(vhost, broker, to)
                    waiting.append(to)
    return came_by


def _way(came_by: Mapping[str, Move], broker: str) -> list[Move]:
    """Return the moves on the way to a broker, the last one first: so no broker leads more than at the end."""
    way: list[Move] = []
    while move := came_by.get(broker):
        way.append(move)
        broker = move.broker
    return way


def _without_detours(led: Mapping[str, LedShard], moves: list[Move]) -> list[Move]:
    """Return one move for each virtual host that has another leader in the end."""
    last = {move.vhost: move.to for move in moves}
    order = list(dict.fromkeys(move.vhost for move in moves))
    return [Move(each, led[each].leader, last[each]) for each in order if led[each].leader != last[each]]
