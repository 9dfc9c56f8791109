"""Counts of queues between brokers: those of the broker that leads, and none from another one or without an answer."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.cluster import shard_calls
from penstock.cluster.calls import LostCallError, NotCarriedOutError
from penstock.cluster.meta.codec import Codec
from penstock.cluster.meta.leader_link import Method
from penstock.cluster.meta.member import MetaMember
from penstock.cluster.record import BrokerName
from penstock.cluster.shard_calls import SHARDS_MAX, CountsAnswer, CountsReport
from penstock.model.errors import StoppedError, Thing
from penstock.model.names import QueueName, VhostName
from penstock.native import QueueCounts, VhostCounts
from penstock.node.in_cluster.leader_counts import LeaderCounts
from penstock.node.in_cluster.owner import ClusterOwner

LEADER, VHOST = BrokerName("mq-1"), VhostName("shop")
A, B = QueueName("a"), QueueName("b")
COUNTS = QueueCounts(
    ready_count=1,
    delayed_count=2,
    unacked_count=3,
    ready_bytes=4,
    unacked_bytes=5,
    consumer_count=6,
    published_count=7,
    delivered_count=8,
    settled_count=9,
    deduplicated_count=10,
)


class Broker:
    """A broker that is asked by itself, whose owner leads while it has counts."""

    def __init__(self) -> None:
        self.counts: dict[QueueName, QueueCounts] | None = {A: COUNTS, B: QueueCounts()}
        self.handlers: dict[Method, Callable[[bytes], Awaitable[bytes]]] = {}
        self.call_through: Callable[[bytes], Awaitable[bytes]] | None = None
        self.totals: VhostCounts | None = VhostCounts(ready_count=7, unacked_count=1)
        self.owner: Any = SimpleNamespace(
            applied=self.applied,
            own_counts=self.own_counts,
            own_totals=self.own_totals,
            topology=SimpleNamespace(queues={A: None, B: None}),
        )
        self.asking = LeaderCounts(cast(MetaMember, self), self.owner_of)

    def answer(self, method: Method, handler: Callable[[bytes], Awaitable[bytes]]) -> None:
        self.handlers[method] = handler

    async def call(self, broker: BrokerName, method: Method, content: bytes) -> bytes:
        assert broker == LEADER
        return await (self.call_through or self.handlers[method])(content)

    async def applied(self) -> None:
        return

    def own_counts(self, names: list[QueueName]) -> list[QueueCounts] | None:
        return None if self.counts is None else [self.counts[name] for name in names]

    def own_totals(self) -> VhostCounts | None:
        return self.totals

    def owner_of(self, name: VhostName) -> ClusterOwner | None:
        return cast(ClusterOwner, self.owner) if name == VHOST else None

    def ask(self, *names: str, vhost: VhostName = VHOST) -> dict[QueueName, QueueCounts]:
        return dict(asyncio.run(self.asking.ask(LEADER, vhost, [QueueName(name) for name in names])))

    def ask_totals(self, *vhosts: VhostName) -> dict[VhostName, VhostCounts]:
        return dict(asyncio.run(self.asking.ask_totals(LEADER, vhosts)))


def test_the_counts_are_those_of_the_leader_in_all_their_fields() -> None:
    found = Broker().ask(A, "unknown there", B)

    assert found == {A: COUNTS, B: QueueCounts()}


def test_a_broker_that_does_not_lead_or_has_no_such_virtual_host_says_none() -> None:
    broker = Broker()
    assert broker.ask(A, vhost=VhostName("other")) == {}

    broker.counts = None
    assert broker.ask(A) == {}


@pytest.mark.parametrize("error", [NotCarriedOutError("an old version"), LostCallError()])
def test_without_an_answer_there_are_no_counts(error: Exception) -> None:
    async def fail(_: bytes) -> bytes:
        raise error

    broker = Broker()
    broker.call_through = fail

    assert broker.ask(A) == {}


def test_a_broker_that_stands_still_is_waited_for_a_short_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(_: bytes) -> bytes:
        await asyncio.sleep(3_600)
        raise AssertionError("the question was not given up")

    monkeypatch.setattr(shard_calls, "ANSWER_S", 0.01)
    broker = Broker()
    broker.call_through = hang

    assert broker.ask(A) == {}


def test_an_answer_that_is_none_is_left_out() -> None:
    async def short(_: bytes) -> bytes:
        return Codec[CountsAnswer](CountsAnswer).encode(
            CountsAnswer((CountsReport(A, (1, 2)), CountsReport(B, (0,) * 10)))
        )

    async def garbage(_: bytes) -> bytes:
        return b"{"

    broker = Broker()
    broker.call_through = short
    assert broker.ask(A, B) == {B: QueueCounts()}
    broker.call_through = garbage
    assert broker.ask(A, B) == {}


def test_a_question_that_is_none_is_refused() -> None:
    with pytest.raises(NotCarriedOutError):
        asyncio.run(cast(Any, Broker().handlers[Method.COUNTS](b"[]")))


def test_the_messages_in_a_virtual_host_are_those_of_its_leader_alone() -> None:
    broker = Broker()
    others = [VhostName(f"other-{number}") for number in range(2 * SHARDS_MAX)]

    assert broker.ask_totals(*others, VHOST) == {VHOST: VhostCounts(ready_count=7, unacked_count=1)}

    broker.totals = None
    assert broker.ask_totals(VHOST) == {}


def test_virtual_hosts_have_no_totals_where_a_broker_has_stopped_or_does_not_know_the_question() -> None:
    def stopped() -> VhostCounts | None:
        raise StoppedError(Thing("vhost", VHOST), "the disk failed")

    async def refuse(_: bytes) -> bytes:
        raise NotCarriedOutError("an old version")

    broker = Broker()
    broker.owner.own_totals = stopped
    assert broker.ask_totals(VHOST) == {}

    broker.call_through = refuse
    assert broker.ask_totals(VHOST) == {}


def test_a_question_for_totals_that_is_none_is_refused() -> None:
    with pytest.raises(NotCarriedOutError):
        asyncio.run(cast(Any, Broker().handlers[Method.TOTALS](b"[]")))
