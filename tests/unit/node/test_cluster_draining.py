"""A broker that is drained hands over what it leads, if another one is to lead."""

import asyncio
from collections.abc import Callable, Sequence
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
from penstock.node.in_cluster.cluster_view import ClusterView
from penstock.node.in_cluster.draining import Draining

BROKERS = [BrokerName(f"mq-{number}") for number in range(3)]
ME = BROKERS[0]


class FakeHost:
    """It leads three shards; each of the others may lead the first two, and none the third."""

    def __init__(self) -> None:
        self.draining: frozenset[BrokerName] = frozenset()
        self.yields = False
        self.handed_over: list[bytes] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def led(self) -> list[Any]:
        return [SimpleNamespace(shard=shard) for shard in (b"a", b"b", b"c") if shard not in self.handed_over]

    def heirs_of(self, shard: bytes) -> dict[str, BrokerName]:
        return {} if shard == b"c" else {broker: broker for broker in BROKERS[1:]}

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


def looked(draining: Sequence[BrokerName]) -> FakeHost:
    """Return a host after its broker has looked once who is drained."""
    host, metadata = FakeHost(), SimpleNamespace(me=ME, state=state_with(draining))
    view = ClusterView("test", cast(Any, host), cast(Any, None), cast(Any, metadata), lambda _: True)

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
    view = ClusterView("test", cast(Any, host), cast(Any, None), cast(Any, metadata), lambda _: True)

    async def look() -> None:
        running = asyncio.ensure_future(Draining(view).run())
        for _ in range(20):
            await asyncio.sleep(0)
        running.cancel()

    asyncio.run(look())
    assert (host.handed_over, host.draining, host.yields) == ([b"a"], frozenset(), False)


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
