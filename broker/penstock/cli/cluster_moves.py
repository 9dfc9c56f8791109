"""Replicas that move between brokers, as `penstock cluster` shows them and waits for them."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock import Connection
    from penstock.client.cluster_records import ClusterShard, ClusterStatus, PlacedReplicas

__all__ = [
    "MOVE_COLUMNS",
    "Placing",
    "is_placed",
    "leaving_moves",
    "moves_of",
    "wait_until_empty",
    "wait_until_placed",
]

MOVE_COLUMNS = ("vhost", "replica", "moves", "state", "lag_bytes")
LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Leaving:
    """A replica that moves from a broker that leaves."""

    vhost: str
    source: str
    to: str


@dataclass(frozen=True, slots=True)
class Placing:
    """A replica that is to move from a broker to another one, either of which may be empty; and the time to wait."""

    vhost: str
    source: str
    to: str
    timeout: float


def is_placed(shard: "ClusterShard") -> bool:
    """Return whether the replicas of a shard are on the brokers that are to have them, and in sync."""
    brokers = {replica.broker for replica in shard.replicas}
    return brokers == set(shard.placed) and all(replica.in_sync for replica in shard.replicas)


def moves_of(shard: "ClusterShard") -> Iterator[tuple[object, ...]]:
    """Yield the replicas of a vhost that come or go, or are not in sync, as columns."""
    if shard.vhost is None or shard.unknown or not shard.replicas:
        return
    known = {replica.broker: replica for replica in shard.replicas}
    for broker in sorted(set(shard.placed) - known.keys()):
        yield shard.vhost, broker, "in", "waits for its turn, or for its broker", "-"
    for broker, replica in sorted(known.items()):
        lag = "-" if replica.lag_bytes is None else replica.lag_bytes
        if broker not in shard.placed:
            state = "leads" if broker == shard.leader else "in sync" if replica.in_sync else "not in sync"
            yield shard.vhost, broker, "out", f"{state}; goes when the others are in sync", lag
        elif not replica.in_sync:
            yield shard.vhost, broker, "in", "catches up" if lag != "-" else "is not heard by the leader", lag


def wait_until_placed(connection: "Connection", wanted: "PlacedReplicas", seconds: float) -> None:
    """Return when the replicas of a vhost are where they are to be. Raise ValueError after a time."""
    deadline = time.monotonic() + seconds
    while True:
        shards = [each for each in connection.admin.cluster_status().shards if each.vhost == wanted.vhost]
        if wanted.shard not in {shard.name for shard in shards}:
            raise ValueError(f"vhost '{wanted.vhost}' was deleted")
        if set(shards[0].placed) != set(wanted.placed):
            raise ValueError(
                f"vhost '{wanted.vhost}' is to have replicas on {', '.join(shards[0].placed)} by another command; see "
                "`penstock cluster status`"
            )
        if all(map(is_placed, shards)):
            return
        if not time.monotonic() < deadline:
            raise ValueError(
                f"the replicas of vhost '{wanted.vhost}' are not on {', '.join(wanted.placed)} yet; it goes on, as "
                "`penstock cluster status` shows"
            )
        time.sleep(LOOK_SECONDS)


def leaving_moves(found: "ClusterStatus", broker: str) -> list[Leaving]:
    """Return a move for each replica of a broker that leaves, to brokers with the fewest replicas.

    Raise ValueError where no other broker is left for one.
    """
    if broker not in {each.name for each in found.brokers}:
        raise ValueError(f"broker '{broker}' is not of the cluster; list its brokers with `penstock cluster status`")
    able = {each.name for each in found.brokers if each.alive and not each.draining and each.name != broker}
    load = Counter(name for shard in found.shards for name in shard.placed)
    moves: list[Leaving] = []
    # All shards of a vhost have the same brokers, and move together.
    for shard in {each.vhost: each for each in found.shards if each.vhost is not None}.values():
        if broker not in shard.placed:
            continue
        others = able.difference(shard.placed)
        if not others:
            raise ValueError(
                f"vhost '{shard.vhost}' has a replica at broker '{broker}', and no other broker that is alive and not "
                f"drained lacks one; add a broker, or run `penstock cluster shrink {shard.vhost} --from {broker}`"
            )
        to = min(others, key=lambda name: (load[name], name))
        load[to] += sum(each.vhost == shard.vhost for each in found.shards)
        moves.append(Leaving(shard.vhost or "", broker, to))
    return moves


def wait_until_empty(connection: "Connection", broker: str, seconds: float) -> None:
    """Return when a broker leads nothing and has no replica of a vhost. Raise ValueError after a time."""
    deadline = time.monotonic() + seconds
    while True:
        shards = connection.admin.cluster_status().shards
        held = [each for each in shards if each.vhost is not None and broker in {at.broker for at in each.replicas}]
        unknown = [each for each in shards if each.unknown]
        if not held and not unknown and all(each.leader != broker for each in shards):
            return
        if not time.monotonic() < deadline:
            first = f"has a replica of vhost '{held[0].vhost}'" if held else "leads the metadata, or may lead something"
            raise ValueError(
                f"broker '{broker}' still {first}; it goes on, as `penstock cluster status` shows: repeat the command"
            )
        time.sleep(LOOK_SECONDS)
