"""Comparisons of replicas with those of their leaders: what is shown of them, and answers that are late or none."""

import asyncio
import struct
from types import SimpleNamespace
from typing import Final, cast

import pytest

from penstock.cluster.calls import Handler, NotCarriedOutError
from penstock.cluster.host import ClusterHost
from penstock.cluster.meta.leader_link import Method
from penstock.cluster.meta.member import MetaMember
from penstock.cluster.record import BrokerName, Leader, ShardRecord
from penstock.native import ReplicaRole
from penstock.node.in_cluster import comparisons
from penstock.node.in_cluster.comparisons import LISTS_AT_ONCE, Comparisons

SHARD: Final = "shop.0.1"
MINE, LEADERS, NEXT = "a" * 32, "b" * 32, "c" * 32
SECONDS_MAX: Final = 60


def listed(until: int, *records: tuple[int, int]) -> bytes:
    return struct.pack("<Q", until) + b"".join(struct.pack("<QI", *record) for record in records)


class Replica:
    """A replica with one record, which ends at 90."""

    def __init__(self) -> None:
        self.shard = SHARD.encode()
        self.replica = MINE
        self.role = ReplicaRole()
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def list_checksums(self, after: int, until: int | None = None) -> bytes:
        await self.goes_on.wait()
        end = min(90, 90 if until is None else until)
        return listed(end, (10, 1)) if after == 0 else listed(max(after, end))


class World:
    """This broker's replica follows that of another one, which sends what a test says."""

    def __init__(self) -> None:
        self.me = SimpleNamespace(name=BrokerName("mq-0"))
        self.replica: Replica | None = Replica()
        self.theirs = [listed(90, (10, 2))]
        self.handlers: dict[Method, Handler] = {}

    def hosted(self, _shard: str) -> Replica | None:
        return self.replica

    def known_record(self, _shard: str) -> ShardRecord:
        leader = Leader(broker="mq-1", replica=LEADERS, boot=1)
        replicas = {MINE: "mq-0", LEADERS: "mq-1", NEXT: "mq-0"}
        return ShardRecord(epoch=5, leader=leader, in_sync=(MINE, LEADERS, NEXT), replicas=replicas, min_in_sync=1)

    def leader_name(self, _shard: bytes) -> BrokerName:
        return BrokerName("mq-1")

    def answer(self, method: Method, handler: Handler) -> None:
        self.handlers[method] = handler

    async def call(self, broker: BrokerName, method: Method, _content: bytes) -> bytes:
        assert (broker, method) == ("mq-1", Method.LIST)
        return self.theirs.pop(0)

    def comparisons(self) -> Comparisons:
        return Comparisons(cast(ClusterHost, self), cast(MetaMember, self), lambda: [SHARD], 0.0, 1e12)


def test_a_difference_is_shown_until_the_replica_begins_anew_or_leaves() -> None:
    async def run() -> None:
        world = World()
        compared = world.comparisons()
        found = await compared.compare(SHARD)
        assert found is not None
        assert (found.differing, found.first) == (1, 10)
        assert compared.counts() == {"differing_records": 1.0}
        assert [each.records for each in await compared.differences(world.me.name, [SHARD])] == [1]

        assert world.replica is not None
        world.replica.replica = NEXT
        assert compared.counts() == {"differing_records": 0.0}
        assert await compared.differences(world.me.name, [SHARD]) == ()
        world.replica = None
        assert compared.counts() == {"differing_records": 0.0}

    asyncio.run(run())


@pytest.mark.parametrize("answer", [b"", listed(91), listed(90, (20, 1), (10, 1)), listed(90)[:-1], listed(0)])
def test_an_answer_that_is_no_such_list_shows_no_difference(answer: bytes) -> None:
    async def run() -> None:
        world = World()
        compared = world.comparisons()
        world.theirs = [answer]
        assert await compared.compare(SHARD) is None
        assert compared.counts() == {"differing_records": 0.0}

    asyncio.run(run())


def test_a_question_that_waits_for_lists_in_vain_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions of brokers that gave them up stayed, and in the end no other call was answered."""
    monkeypatch.setattr(comparisons, "ANSWER_S", 0.01)

    async def run() -> None:
        world = World()
        compared = world.comparisons()
        assert world.replica is not None
        world.replica.role = ReplicaRole(epoch=5)
        world.replica.goes_on.clear()
        question = struct.pack("<QQ", 0, 90) + SHARD.encode()
        answer = world.handlers[Method.LIST]
        slow = [asyncio.ensure_future(answer(question)) for _ in range(LISTS_AT_ONCE)]
        await asyncio.sleep(0)

        async with asyncio.timeout(SECONDS_MAX):
            with pytest.raises(NotCarriedOutError):
                await answer(question)

        world.replica.goes_on.set()
        assert await asyncio.gather(*slow) == [listed(90, (10, 1))] * LISTS_AT_ONCE
        assert await answer(question) == listed(90, (10, 1))
        assert compared.counts() == {"differing_records": 0.0}

    asyncio.run(run())
