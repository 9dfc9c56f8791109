"""Counts of queues and of virtual hosts that another broker leads: it is asked, and answers of what it leads alone.

Counts are for people and for clients that declare: without an answer soon they are those of no messages.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from penstock.cluster.calls import NotCarriedOutError
from penstock.cluster.meta.member import MetaMember
from penstock.cluster.record import BrokerName
from penstock.cluster.shard_calls import (
    COUNTS,
    SHARDS_MAX,
    TOTALS,
    CountsAnswer,
    CountsQuestion,
    CountsReport,
    TotalsAnswer,
    TotalsQuestion,
    TotalsReport,
)
from penstock.model.errors import FaultError
from penstock.model.names import QueueName, VhostName
from penstock.native import QueueCounts, VhostCounts
from penstock.node.in_cluster.owner import ClusterOwner

_FIELDS: Final = (
    "ready_count",
    "delayed_count",
    "unacked_count",
    "ready_bytes",
    "unacked_bytes",
    "consumer_count",
    "published_count",
    "delivered_count",
    "settled_count",
    "deduplicated_count",
)


class LeaderCounts:
    """`owner_of` returns the owner of a virtual host; None where there is none."""

    def __init__(self, member: MetaMember, owner_of: Callable[[VhostName], ClusterOwner | None]) -> None:
        self._member = member
        self._owner_of = owner_of
        member.answer(COUNTS.method, COUNTS.handler(self._answer))
        member.answer(TOTALS.method, TOTALS.handler(self._answer_totals))

    async def ask(
        self, leader: BrokerName, vhost: VhostName, names: Sequence[QueueName]
    ) -> Mapping[QueueName, QueueCounts]:
        """Return the counts of queues as the broker that leads has them; none without an answer in time."""
        answer = await COUNTS.ask(self._member, leader, CountsQuestion(vhost, tuple(names)))
        return {
            QueueName(each.queue): QueueCounts(**dict(zip(_FIELDS, each.counts, strict=True)))
            for each in (() if answer is None else answer.queues)
            if len(each.counts) == len(_FIELDS)
        }

    async def ask_totals(self, leader: BrokerName, vhosts: Sequence[VhostName]) -> Mapping[VhostName, VhostCounts]:
        """Return the messages in virtual hosts that a broker leads; none without an answer in time."""
        found: dict[VhostName, VhostCounts] = {}
        for begin in range(0, len(vhosts), SHARDS_MAX):
            question = TotalsQuestion(tuple(vhosts[begin : begin + SHARDS_MAX]))
            answer = await TOTALS.ask(self._member, leader, question)
            if answer is None:
                break
            for each in answer.vhosts:
                counts = VhostCounts(ready_count=each.ready_count, unacked_count=each.unacked_count)
                found[VhostName(each.vhost)] = counts
        return found

    async def _answer_totals(self, asked: TotalsQuestion) -> TotalsAnswer:
        return TotalsAnswer(tuple(self._own_totals(asked.vhosts[:SHARDS_MAX])))

    def _own_totals(self, vhosts: Sequence[str]) -> Iterator[TotalsReport]:
        for name in vhosts:
            owner = self._owner_of(VhostName(name))
            try:
                totals = None if owner is None else owner.own_totals()
            except FaultError:
                continue  # one that has stopped hides none of the others
            if totals is not None:
                yield TotalsReport(name, totals.ready_count, totals.unacked_count)

    async def _answer(self, asked: CountsQuestion) -> CountsAnswer:
        owner = self._owner_of(VhostName(asked.vhost))
        if owner is None:
            raise NotCarriedOutError("this broker has no such virtual host")
        await owner.applied()
        names = [QueueName(name) for name in asked.queues if name in owner.topology.queues]
        counts = owner.own_counts(names)
        if counts is None:
            raise NotCarriedOutError("this broker does not lead the virtual host")
        reports = (
            CountsReport(name, tuple(getattr(each, field) for field in _FIELDS))
            for name, each in zip(names, counts, strict=True)
        )
        return CountsAnswer(tuple(reports))
