"""Reports of the leaders of shards: how far the replicas are.

This broker answers for the shards that it leads.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence

from penstock.cluster.host import ClusterHost
from penstock.cluster.hosted import HostedReplica
from penstock.cluster.meta.member import MetaMember
from penstock.cluster.record import BrokerName
from penstock.cluster.shard_calls import (
    PROGRESS,
    SHARDS_MAX,
    ProgressAnswer,
    ProgressQuestion,
    ShardReport,
)


class LeaderReports:
    def __init__(self, host: ClusterHost, member: MetaMember) -> None:
        self._host = host
        self._member = member
        member.answer(PROGRESS.method, PROGRESS.handler(self._answer))

    async def ask(self, leader: BrokerName, shards: Sequence[str]) -> Sequence[ShardReport]:
        """Return reports of those shards that a broker leads; none where it does not answer in time."""
        if leader == self._host.me.name:
            return await self._own(shards)
        answer = await PROGRESS.ask(self._member, leader, ProgressQuestion(tuple(shards)))
        return () if answer is None else answer.shards

    async def _answer(self, asked: ProgressQuestion) -> ProgressAnswer:
        return ProgressAnswer(tuple(await self._own(asked.shards[:SHARDS_MAX])))

    async def _own(self, shards: Sequence[str]) -> list[ShardReport]:
        """Return reports of the shards that this broker leads."""
        replicas = {shard: replica for shard in shards if (replica := self._host.hosted(shard)) is not None}
        return await asyncio.to_thread(lambda: list(_reports_of(replicas)))


def _reports_of(replicas: Mapping[str, HostedReplica]) -> Iterator[ShardReport]:
    """Yield what the replicas that lead know. Blocks for a moment."""
    for shard, replica in replicas.items():
        found = replica.progress()
        if found is not None:
            acknowledged = {each.replica: each.position for each in found.acknowledged}
            yield ShardReport(shard, found.epoch, found.end, acknowledged)
