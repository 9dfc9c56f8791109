"""Replicas that move between brokers, as `penstock cluster` shows them and waits for them."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock import Connection
    from penstock.cli.cluster_calls import ClusterShard, PlacedReplicas

__all__ = ["MOVE_COLUMNS", "Placing", "is_placed", "moves_of", "wait_until_placed"]

MOVE_COLUMNS = ("vhost", "replica", "moves", "state", "lag_bytes")
LOOK_SECONDS = 0.2


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
    from penstock.cli.cluster_calls import cluster_status

    deadline = time.monotonic() + seconds
    while True:
        shard = next((each for each in cluster_status(connection).shards if each.name == wanted.shard), None)
        if shard is None:
            raise ValueError(f"vhost '{wanted.vhost}' was deleted")
        if set(shard.placed) != set(wanted.placed):
            raise ValueError(
                f"vhost '{wanted.vhost}' is to have replicas on {', '.join(shard.placed)} by another command; see "
                "`penstock cluster status`"
            )
        if is_placed(shard):
            return
        if not time.monotonic() < deadline:
            raise ValueError(
                f"the replicas of vhost '{wanted.vhost}' are not on {', '.join(wanted.placed)} yet; it goes on, as "
                "`penstock cluster status` shows"
            )
        time.sleep(LOOK_SECONDS)
