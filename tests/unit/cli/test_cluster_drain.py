"""`penstock cluster drain` waits until others lead, and says so only when they do."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.cli import cluster


def shard(vhost: str | None, leader: str, *, led: bool = True) -> Any:
    return SimpleNamespace(vhost=vhost, leader=leader, led=led)


def wait(monkeypatch: pytest.MonkeyPatch, *answers: list[Any], seconds: float = 60.0) -> int:
    """Wait until mq-0 is drained, with an answer for each look, the last one again and again; return the looks."""
    looks = 0

    def cluster_status() -> Any:
        nonlocal looks
        looks += 1
        return SimpleNamespace(shards=answers[min(looks, len(answers)) - 1])

    connection = SimpleNamespace(admin=SimpleNamespace(cluster_status=cluster_status))
    monkeypatch.setattr(cluster, "LOOK_SECONDS", 0)
    cluster._wait_until_drained(cast(Any, connection), "mq-0", seconds)
    return looks


def test_it_waits_until_another_broker_leads_each_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    led = [shard(None, "mq-1"), shard("/", "mq-2")]

    assert wait(monkeypatch, [shard(None, "mq-1"), shard("/", "mq-0")], led) == 2


@pytest.mark.parametrize("unknown", [shard("/", "", led=False), shard("/", "mq-1", led=False)], ids=["none", "silent"])
def test_a_shard_that_no_broker_leads_may_be_led_by_the_drained_one(
    monkeypatch: pytest.MonkeyPatch, unknown: Any
) -> None:
    """It was taken for one that another broker leads, also without an answer of the coordinator."""
    assert wait(monkeypatch, [unknown], [unknown], [shard("/", "mq-1")]) == 3


@pytest.mark.parametrize("seconds", [0.0, float("nan")])
def test_it_names_what_is_left_after_a_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    left = [shard(None, "mq-0"), shard("shop", "", led=False)]

    with pytest.raises(ValueError, match=r"no other broker than 'mq-0' leads .*, vhost 'shop' yet"):
        wait(monkeypatch, left, seconds=seconds)
