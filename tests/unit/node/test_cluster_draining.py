"""A broker that is drained hands over what it leads, if another one is to lead."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.cluster.meta.broker_rules import set_draining
from penstock.cluster.meta.changes import BrokerPut
from penstock.cluster.meta.commands import Addresses, MetaAnswer, SetDraining
from penstock.cluster.meta.pending import PendingState
from penstock.cluster.meta.state import MetaState
from penstock.cluster.record import BrokerName
from penstock.cluster.shard_calls import HandOver
from penstock.metadata.effects import Done
from penstock.model.errors import NotFoundError, PreconditionFailedError
from penstock.node.in_cluster import draining
from penstock.node.in_cluster.cluster_view import ClusterView
from penstock.node.in_cluster.draining import HAND_OVERS_MAX, Draining
from penstock.node.in_cluster.tries import Tries

BROKERS = [BrokerName(f"mq-{number}") for number in range(3)]
ME = BROKERS[0]


class FakeHost:
    """It leads some shards; each of the others may lead all of them but "none"."""

    def __init__(self, *shards: bytes) -> None:
        self.shards = list(shards or (b"a", b"b", b"none"))
        self.draining: frozenset[BrokerName] = frozenset()
        self.yields = False
        self.heirs = BROKERS[1:]
        self.handed_over: list[bytes] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def led(self) -> list[Any]:
        return [SimpleNamespace(shard=shard) for shard in self.shards if shard not in self.handed_over]

    def hosted(self, shard: str) -> Any:
        return SimpleNamespace(shard=shard.encode())

    def heirs_of(self, shard: bytes) -> dict[str, BrokerName]:
        return {} if shard == b"none" else {broker: broker for broker in self.heirs}

    async def set_yields(self, *, yields: bool) -> None:
        self.yields = yields

    async def resign(self, replica: Any) -> HandOver:
        self.handed_over.append(replica.shard)
        self.meanwhile()
        return HandOver.DONE


def state_with(draining: Sequence[BrokerName]) -> MetaState:
    state = MetaState()
    state.brokers = {each: BrokerPut(each, 1, 1, each in draining, Addresses()) for each in BROKERS}
    return state


def view_of(host: FakeHost, draining: Sequence[BrokerName] = (ME,)) -> ClusterView:
    metadata = SimpleNamespace(me=ME, state=state_with(draining))
    return ClusterView("test", cast(Any, host), cast(Any, None), cast(Any, metadata), lambda _: True, Path)


def looked(draining: Sequence[BrokerName]) -> FakeHost:
    """Return a host after its broker has looked once who is drained."""
    host = FakeHost()
    view = view_of(host, draining)

    async def look() -> None:
        running = asyncio.ensure_future(Draining(view).run())
        await asyncio.sleep(0)
        while host.draining != frozenset(draining):  # noqa: ASYNC110 (the loop tells of nothing)
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        running.cancel()

    asyncio.run(look())
    return host


def test_a_drained_broker_hands_over_what_another_one_may_lead() -> None:
    host = looked([ME])

    assert (host.handed_over, host.yields) == ([b"a", b"b"], True)


@pytest.mark.parametrize("draining", [[], [BROKERS[1]], BROKERS])
def test_a_broker_leads_on_that_is_not_drained_or_that_only_drained_ones_could_follow(
    draining: list[BrokerName],
) -> None:
    host = looked(draining)

    assert (host.handed_over, host.yields) == ([], ME in draining)


def test_a_broker_stops_handing_over_when_it_is_not_drained_any_more() -> None:
    """It handed over everything that it led when it began."""
    host, metadata = FakeHost(), SimpleNamespace(me=ME, state=state_with([ME]))

    def undo() -> None:
        metadata.state = state_with([])

    host.meanwhile = undo
    view = ClusterView("test", cast(Any, host), cast(Any, None), cast(Any, metadata), lambda _: True, Path)

    async def look() -> None:
        running = asyncio.ensure_future(Draining(view).run())
        for _ in range(20):
            await asyncio.sleep(0)
        running.cancel()

    asyncio.run(look())
    assert (host.handed_over, host.draining, host.yields) == ([b"a"], frozenset(), False)


class SlowHost(FakeHost):
    """Its hand-overs end when they may."""

    def __init__(self, *shards: bytes) -> None:
        super().__init__(*shards)
        self.asked: list[bytes] = []
        self.may_end = asyncio.Event()

    async def resign(self, replica: Any) -> HandOver:
        self.asked.append(replica.shard)
        await self.may_end.wait()
        return await super().resign(replica)


def test_some_shards_are_handed_over_at_once_and_the_metadata_last() -> None:
    """They were handed over one after another: a thousand that are slow took minutes."""

    async def run() -> None:
        shards = [b"%d" % number for number in range(HAND_OVERS_MAX + 5)]
        host = SlowHost(b"meta", *shards)
        running = asyncio.ensure_future(Draining(view_of(host)).run())
        await turns()
        assert host.asked == shards[:HAND_OVERS_MAX]

        host.may_end.set()
        await turns()
        assert host.handed_over == [*shards, b"meta"]
        running.cancel()

    asyncio.run(run())


async def turns() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


class FakeClock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


class RefusedHost(FakeHost):
    """No other broker takes a shard over."""

    def __init__(self) -> None:
        super().__init__(b"a")
        self.tries = 0

    async def resign(self, replica: Any) -> HandOver:
        del replica
        self.tries += 1
        return HandOver.NOT_TAKEN


def test_a_shard_that_is_not_taken_over_is_tried_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try stops its publishers for a moment, and it was tried again every 2.5 seconds."""
    monkeypatch.setattr(draining, "LOOK_S", 0.0)

    async def run() -> None:
        host, clock, tried_at = RefusedHost(), FakeClock(), []
        running = asyncio.ensure_future(Draining(view_of(host), clock).run())
        for second in range(120):
            clock.seconds, before = float(second), host.tries
            await turns()
            tried_at += [second] * (host.tries - before)
        assert tried_at == [0, 2, 6, 14, 30, 60, 90]

        host.heirs = BROKERS[2:]
        await turns()
        assert host.tries == len(tried_at) + 1
        running.cancel()

    asyncio.run(run())


def test_tries_of_a_shard_that_is_not_led_any_more_are_forgotten() -> None:
    tries, heirs = Tries(), frozenset({"1"})
    assert [tries.fail(shard, heirs, 0.0) for shard in (b"a", b"b", b"a")] == [2.0, 2.0, 4.0]
    assert not tries.is_due(b"a", heirs, 3.9)

    tries.keep({b"b"})

    assert (tries.is_due(b"a", heirs, 0.0), tries.is_due(b"b", heirs, 0.0)) == (True, False)


def decided(draining: Sequence[BrokerName], broker: str, *, is_draining: bool) -> tuple[MetaAnswer, bool]:
    """Return the answer to a command, and whether the broker is drained then."""
    state = PendingState(state_with(draining))
    name = BrokerName(broker)
    answer, _ = set_draining(state, SetDraining(name, is_draining), 1)
    return answer, state.brokers[name].is_draining


def test_a_broker_is_drained_until_that_ends() -> None:
    assert decided([], "mq-1", is_draining=True) == (Done(), True)
    assert decided([BROKERS[1]], "mq-1", is_draining=True) == (Done(0), True)
    assert decided([BROKERS[1]], "mq-1", is_draining=False) == (Done(), False)


def test_the_last_broker_and_an_unknown_one_are_not_drained() -> None:
    with pytest.raises(PreconditionFailedError, match="broker 'mq-2' is the last one that is not drained"):
        decided(BROKERS[:2], "mq-2", is_draining=True)
    with pytest.raises(NotFoundError, match="broker 'mq-9' not found"):
        decided([], "mq-9", is_draining=True)
