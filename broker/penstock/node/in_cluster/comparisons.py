"""Comparisons of this broker's replicas with those of their leaders, beside the checks of what lies on the disk.

A record keeps its position and its checksum on every replica, whatever each of them has removed or rewritten. So a
follower in sync lists the committed records that it has, asks the leader for the same list, and compares what both
have. A difference is reported, and nothing is changed: neither of the two knows who is right.

One shard is compared at a time, a list after the other, with a pause that grows with the part of the log that it
covers. Answers of other brokers are checked by the native module.
"""

import asyncio
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.cluster.calls import LostCallError, NotCarriedOutError
from penstock.cluster.host import ClusterHost
from penstock.cluster.hosted import HostedReplica
from penstock.cluster.meta.leader_link import Method
from penstock.cluster.meta.member import MetaMember
from penstock.cluster.record import BrokerName
from penstock.cluster.shard_calls import (
    DIFFERENCES,
    SHARDS_MAX,
    DifferencesAnswer,
    DifferencesQuestion,
    DifferencesReport,
)
from penstock.kit.logging import logger
from penstock.model.errors import StorageError
from penstock.native import compare_lists

BYTES_PER_SECOND: Final = 8_000_000
"""Of the log that lists cover, on average."""
SPAN_BYTES_MAX: Final = 64_000_000
"""A list covers records of one segment. Positions of records that were removed cost nothing."""
PAUSE_S_MIN: Final = 0.05
ANSWER_S: Final = 10.0
LISTS_AT_ONCE: Final = 2
"""Lists that are made for other brokers. Others wait."""
_QUESTION: Final = struct.Struct("<QQ")
_log = logger("cluster")


@dataclass(slots=True)
class Found:
    """The outcome of a comparison of a replica; `replica` is the identity of its disk."""

    replica: str
    leader: BrokerName
    compared: int = 0
    differing: int = 0
    first: int = 0
    """The position of the first record that differs."""


@dataclass(slots=True)
class Comparisons:
    """`run` compares as often as `every_s`, or never. `shards` returns the names of all shards of the cluster."""

    host: ClusterHost
    member: MetaMember
    shards: Callable[[], Iterable[str]]
    every_s: float
    bytes_per_second: float = BYTES_PER_SECOND
    _found: dict[str, Found] = field(default_factory=dict)
    _listing: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LISTS_AT_ONCE))

    def __post_init__(self) -> None:
        self.member.answer(Method.LIST, self._answer_list)
        self.member.answer(DIFFERENCES.method, DIFFERENCES.handler(self._answer_differences))

    async def run(self) -> None:
        """Compare all replicas that follow here, again and again, until it is cancelled."""
        while self.every_s > 0:
            await asyncio.sleep(self.every_s)
            for shard in list(self.shards()):
                await self.compare(shard)

    async def compare(self, shard: str) -> Found | None:
        """Compare the replica of a shard with that of its leader; None where that is not possible to the end."""
        after, found = 0, None
        while (both := self._both(shard)) is not None:
            replica, leader = both
            try:
                if found is None or found.replica != replica.replica or found.leader != leader:
                    found, after = Found(replica.replica, leader), 0
                own = await replica.list_checksums(after)
                end = _end_of(own)
                if end == after:
                    self._keep(shard, found)
                    return found
                after_before, after = after, await self._compare_part(shard, found, (after, end), own)
            except (StorageError, NotCarriedOutError, LostCallError, TimeoutError, ValueError, RuntimeError) as error:
                _log.info("replicas not compared to the end", shard=shard, leader=leader, reason=str(error))
                return None
            if after == after_before:
                return None  # the leader was elected just now, and knows less as committed
            await asyncio.sleep(max(PAUSE_S_MIN, min(after - after_before, SPAN_BYTES_MAX) / self.bytes_per_second))
        return None

    def counts(self) -> Mapping[str, float]:
        """Return the figures for `/metrics`."""
        return {"differing_records": float(sum(found.records for found in self._own(self._found)))}

    async def differences(self, broker: BrokerName, shards: Iterable[str]) -> tuple[DifferencesReport, ...]:
        """Return the differences that a broker has found at its replicas; none without an answer in time."""
        asked = tuple(shards)[:SHARDS_MAX]
        if broker == self.host.me.name:
            return self._own(asked)
        answer = await DIFFERENCES.ask(self.member, broker, DifferencesQuestion(asked))
        return () if answer is None else answer.shards

    # ------------------------------------------------------------ parts

    def _both(self, shard: str) -> tuple[HostedReplica, BrokerName] | None:
        """Return the replica that follows here, if it is in sync, and the broker that leads."""
        replica, record = self.host.hosted(shard), self.host.known_record(shard)
        if replica is None or record is None or replica.role.epoch is not None or replica.role.halted is not None:
            return None
        leader = self.host.leader_name(replica.shard)
        if leader is None or leader == self.host.me.name or identity_of(replica) not in record.in_sync:
            return None
        return replica, leader

    async def _compare_part(self, shard: str, found: Found, part: tuple[int, int], own: bytes) -> int:
        """Compare a list with the leader's, and return the position up to which both go.

        Raises NotCarriedOutError, LostCallError, TimeoutError, and ValueError for an answer that is no such list.
        """
        after, end = part
        question = _QUESTION.pack(after, end) + shard.encode()
        async with asyncio.timeout(ANSWER_S):
            theirs = await self.member.call(found.leader, Method.LIST, question)
        compared = compare_lists(after, own, theirs)
        if compared.differing and not found.differing:
            found.first = compared.named[0].position
            self._found[shard] = found  # also where the comparison does not come to its end
        for record in compared.named if not found.differing else ():
            _log.error(
                "record differs from the leader's: nothing was changed",
                shard=shard,
                position=record.position,
                checksum=f"{record.own:08x}",
                leader=found.leader,
                checksum_of_leader=f"{record.other:08x}",
            )
        found.compared += compared.count
        found.differing += compared.differing
        return compared.until

    def _keep(self, shard: str, found: Found) -> None:
        """Keep the outcome of a comparison until the next one."""
        if found.differing:
            self._found[shard] = found
            _log.error(
                "replica differs from the leader's",
                shard=shard,
                leader=found.leader,
                records=found.differing,
                compared=found.compared,
                first_position=found.first,
            )
        else:
            self._found.pop(shard, None)

    async def _answer_list(self, question: bytes) -> bytes:
        try:
            after, end = _QUESTION.unpack_from(question)
            replica = self.host.hosted(question[_QUESTION.size :].decode())
        except (struct.error, UnicodeDecodeError) as error:
            raise NotCarriedOutError(str(error)) from error
        if replica is None or replica.role.epoch is None:
            raise NotCarriedOutError("this broker does not lead the shard")
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._listing.acquire()
        except TimeoutError as error:  # the asker has given it up
            raise NotCarriedOutError("too many lists wait") from error
        try:
            return await replica.list_checksums(after, end)
        except (StorageError, RuntimeError) as error:
            raise NotCarriedOutError(str(error)) from error
        finally:
            self._listing.release()

    async def _answer_differences(self, asked: DifferencesQuestion) -> DifferencesAnswer:
        return DifferencesAnswer(self._own(asked.shards[:SHARDS_MAX]))

    def _own(self, shards: Iterable[str]) -> tuple[DifferencesReport, ...]:
        """Return the differences that were found here at replicas that are still open."""
        found = ((shard, self._found.get(shard), self.host.hosted(shard)) for shard in shards)
        return tuple(
            DifferencesReport(shard, each.replica, each.leader, each.differing, each.first)
            for shard, each, replica in found
            if each is not None and replica is not None and identity_of(replica) == each.replica
        )


def identity_of(replica: HostedReplica) -> str | None:
    """Return the identity of a replica's disk; None while a copy takes the place of its log."""
    try:
        return replica.replica
    except RuntimeError:
        return None


def _end_of(listed: bytes) -> int:
    return int.from_bytes(listed[:8], "little")
