"""Counts of queues whose virtual host another broker leads: that broker is asked, and answers of its own queues alone.

Counts are for people and for clients that declare: without an answer soon they are those of no messages.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from penstock.cluster.calls import LostCallError, NotCarriedOutError
from penstock.cluster.meta.codec import CodecError
from penstock.cluster.meta.leader_link import Method
from penstock.cluster.meta.member import MetaMember
from penstock.cluster.record import BrokerName
from penstock.cluster.shard_calls import (
    COUNTS_ANSWERS,
    COUNTS_QUESTIONS,
    CountsAnswer,
    CountsQuestion,
    CountsReport,
)
from penstock.model.names import QueueName, VhostName
from penstock.native import QueueCounts
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
