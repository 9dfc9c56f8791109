"""`penstock cluster rebalance` goes on after a leader that does not move, and counts only leaders that answer."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

import penstock
from penstock.cli import cluster
from penstock.cli.rebalancing import Move


def shard(vhost: str | None, leader: str, *, led: bool = True) -> Any:
    replicas = [SimpleNamespace(broker=broker, in_sync=True) for broker in ("mq-0", "mq-1")]
    return SimpleNamespace(vhost=vhost, leader=leader, led=led, replicas=replicas)


def broker(name: str, *, alive: bool = True, draining: bool = False) -> Any:
    return SimpleNamespace(name=name, alive=alive, draining=draining)


def moves(*shards: Any, brokers: tuple[Any, ...] = (broker("mq-0"), broker("mq-1"))) -> list[Move]:
    return cluster._moves(cast(Any, SimpleNamespace(shards=shards, brokers=brokers)))


def test_the_metadata_and_leaders_that_do_not_answer_stay() -> None:
    two = (shard("a", "mq-0"), shard("b", "mq-0"))

    assert moves(*two) == [Move("a", "mq-0", "mq-1")]
    assert moves(shard(None, "mq-0"), shard("a", "mq-0")) == []
    assert moves(shard("a", "mq-0"), shard("b", "mq-0", led=False)) == []


def test_nothing_moves_to_a_broker_that_is_gone_or_drained() -> None:
    two = (shard("a", "mq-0"), shard("b", "mq-0"))

    assert moves(*two, brokers=(broker("mq-0"), broker("mq-1", alive=False))) == []
    assert moves(*two, brokers=(broker("mq-0"), broker("mq-1", draining=True))) == []


def test_a_virtual_host_moves_once_with_all_its_shards() -> None:
    learner = shard("a", "mq-0")
    learner.replicas[1].in_sync = False

    assert moves(*[shard("a", "mq-0")] * 3, shard("b", "mq-0")) == [Move("a", "mq-0", "mq-1")]
    assert moves(shard("a", "mq-0"), learner, shard("b", "mq-0")) == [Move("b", "mq-0", "mq-1")], "it is not in sync"
    assert moves(shard("a", "mq-0"), shard("a", "mq-1"), shard("b", "mq-0")) == [], "it is led by no broker alone"


@pytest.mark.parametrize(
    "error", [penstock.PreconditionFailedError("not in sync"), penstock.ConnectionLostError("busy")]
)
def test_a_leader_that_does_not_move_is_said(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object) -> None:
        raise error

    connection = SimpleNamespace(admin=SimpleNamespace(move_leader=fail))

    assert not cluster._carry_out(cast(Any, connection), Move("a", "mq-0", "mq-1"))
    assert str(error) in capsys.readouterr().err
