"""The moves of `penstock cluster remove`: where the replicas of a broker that leaves go."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.cli.cluster_moves import Leaving, leaving_moves


def shard(vhost: str | None, *placed: str) -> Any:
    return SimpleNamespace(vhost=vhost, placed=placed)


def broker(name: str, *, alive: bool = True, draining: bool = False) -> Any:
    return SimpleNamespace(name=name, alive=alive, draining=draining)


def moves(shards: list[Any], brokers: list[Any]) -> list[Leaving]:
    return leaving_moves(cast(Any, SimpleNamespace(shards=shards, brokers=brokers)), "mq-0")


def test_replicas_go_to_the_brokers_with_the_fewest() -> None:
    brokers = [broker(f"mq-{number}") for number in range(4)]
    shards = [shard(None), shard("a", "mq-0", "mq-1"), shard("b", "mq-0", "mq-2"), shard("c", "mq-1", "mq-2")]

    assert moves(shards, brokers) == [Leaving("a", "mq-0", "mq-3"), Leaving("b", "mq-0", "mq-3")]


def test_the_replicas_of_all_shards_of_a_virtual_host_go_to_one_broker() -> None:
    brokers = [broker(f"mq-{number}") for number in range(3)]
    shards = [shard("a", "mq-0"), shard("a", "mq-0"), shard("b", "mq-0"), shard("c", "mq-2")]

    assert moves(shards, brokers) == [Leaving("a", "mq-0", "mq-1"), Leaving("b", "mq-0", "mq-2")]


def test_a_broker_without_another_place_for_its_replicas_is_not_removed() -> None:
    brokers = [broker("mq-0"), broker("mq-1"), broker("mq-2", alive=False), broker("mq-3", draining=True)]
    with pytest.raises(ValueError, match=r"vhost 'a' .* no other broker .*penstock cluster shrink a --from mq-0"):
        moves([shard("a", "mq-0", "mq-1")], brokers)
    with pytest.raises(ValueError, match="broker 'mq-0' is not of the cluster"):
        moves([], [broker("mq-1")])
