"""Counts of queues and of virtual hosts that another broker leads: it is asked, and answers of what it leads alone.

Counts are for people and for clients that declare: without an answer soon they are those of no messages.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from penstock.cluster.calls import LostCallError, NotCarriedOutError
from penstock.cluster.meta.codec import CodecError
from penstock.cluster.meta.leader_link import Method
from penstock.cluster.meta.member import MetaMember
from penstock.cluster.record import BrokerName
from penstock.cluster.shard_calls import (
    COUNTS_ANSWERS,
    COUNTS_QUESTIONS,
    SHARDS_MAX,
    TOTALS_ANSWERS,
    TOTALS_QUESTIONS,
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

ANSWER_S: Final = 2.0
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
        member.answer(Method.COUNTS, self._answer)
        member.answer(Method.TOTALS, self._answer_totals)

    async def ask(
        self, leader: BrokerName, vhost: VhostName, names: Sequence[QueueName]
    ) -> Mapping[QueueName, QueueCounts]:
        """Return the counts of queues as the broker that leads has them; none without an answer in time."""
        question = COUNTS_QUESTIONS.encode(CountsQuestion(vhost, tuple(names)))
        try:
            async with asyncio.timeout(ANSWER_S):
                found = COUNTS_ANSWERS.decode(await self._member.call(leader, Method.COUNTS, question))
        except (NotCarriedOutError, LostCallError, CodecError, TimeoutError):
            return {}
        return {
            QueueName(each.queue): QueueCounts(**dict(zip(_FIELDS, each.counts, strict=True)))
            for each in found.queues
            if len(each.counts) == len(_FIELDS)
        }

    async def ask_totals(self, leader: BrokerName, vhosts: Sequence[VhostName]) -> Mapping[VhostName, VhostCounts]:
        """Return the messages in virtual hosts that a broker leads; none without an answer in time."""
        found: dict[VhostName, VhostCounts] = {}
        try:
            async with asyncio.timeout(ANSWER_S):
                for begin in range(0, len(vhosts), SHARDS_MAX):
                    question = TotalsQuestion(tuple(vhosts[begin : begin + SHARDS_MAX]))
                    answer = await self._member.call(leader, Method.TOTALS, TOTALS_QUESTIONS.encode(question))
                    for each in TOTALS_ANSWERS.decode(answer).vhosts:
                        counts = VhostCounts(ready_count=each.ready_count, unacked_count=each.unacked_count)
                        found[VhostName(each.vhost)] = counts
        except (NotCarriedOutError, LostCallError, CodecError, TimeoutError):
            pass  # an older version, for example
        return found

    async def _answer_totals(self, question: bytes) -> bytes:
        try:
            asked = TOTALS_QUESTIONS.decode(question).vhosts[:SHARDS_MAX]
        except CodecError as error:
            raise NotCarriedOutError(str(error)) from error
        return TOTALS_ANSWERS.encode(TotalsAnswer(tuple(self._own_totals(asked))))

    def _own_totals(self, vhosts: Sequence[str]) -> Iterator[TotalsReport]:
        for name in vhosts:
            owner = self._owner_of(VhostName(name))
            try:
                totals = None if owner is None else owner.own_totals()
            except FaultError:
                continue  # one that has stopped hides none of the others
            if totals is not None:
                yield TotalsReport(name, totals.ready_count, totals.unacked_count)

    async def _answer(self, question: bytes) -> bytes:
        try:
            asked = COUNTS_QUESTIONS.decode(question)
        except CodecError as error:
            raise NotCarriedOutError(str(error)) from error
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
        return COUNTS_ANSWERS.encode(CountsAnswer(tuple(reports)))
