"""Moves the leadership of a virtual host to the broker that an operator chose.

The broker that leads hands over, whichever broker was asked. Nothing is stored meanwhile: the change of the record at
the coordinator is the whole move, so a broker that dies on the way leaves either the old leader or the new one, or an
election. Asking again does no harm.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from penstock.cluster.record import BrokerName, ShardRecord
from penstock.cluster.shard_calls import (
    HAND_OVER,
    HandOver,
    HandOverAnswer,
    HandOverQuestion,
    ShardReport,
)
from penstock.model.errors import BusyError, NotFoundError, PreconditionFailedError, Thing
from penstock.model.names import VhostName
from penstock.node.in_cluster.cluster_view import ClusterView
from penstock.services.ports import MovedLeader

MOVE_S: Final = 10.0
"""A leader is asked again until this time is over."""
RETRY_FIRST_S, RETRY_LONGEST_S = 0.01, 0.1
"""The time until it is asked again, which grows: mostly the other one leads within milliseconds."""


class LeaderMoves:
    """`reports_of` asks a broker about shards that it may lead; it returns nothing where there is no answer."""

    def __init__(
        self, view: ClusterView, reports_of: Callable[[BrokerName, Sequence[str]], Awaitable[Sequence[ShardReport]]]
    ) -> None:
        self._view = view
        self._reports_of = reports_of
        view.member.answer(HAND_OVER.method, HAND_OVER.handler(self._answer_hand_over))

    async def move(self, vhost: VhostName, to: BrokerName) -> MovedLeader:
        """Return when a broker leads all shards of a virtual host.

        Raises NotFoundError, PreconditionFailedError where that broker cannot lead, BusyError when it does not in time,
        and StorageError without the coordinator.
        """
        thing, leader, is_moved, retry_s = Thing("vhost", vhost), "", False, RETRY_FIRST_S
        try:
            async with asyncio.timeout(MOVE_S):
                while True:
                    # They may change meanwhile, by another operator.
                    shards = self._shards_of(vhost)
                    self._check_broker(to)
                    records = await self._records(shards)
                    others = {shard: record for shard, record in records.items() if record.leader.broker != to}
                    leader = next((record.leader.broker for record in others.values()), to if records else "")
                    if others:
                        for record in records.values():
                            check_replica(thing, record, to)
                        is_moved = True
                        await self._ask_leaders(others, to)
                    elif len(records) == len(shards) and await self._leads(to, records):
                        return MovedLeader(shards[0], to, records[shards[0]].epoch, is_moved)
                    await asyncio.sleep(retry_s)
                    retry_s = min(2 * retry_s, RETRY_LONGEST_S)
        except TimeoutError as error:
            place = f"is still led by broker '{leader}'" if leader else "is led by no broker yet"
            if leader == to:
                place = f"is to be led by broker '{leader}', which does not answer,"
            raise BusyError(thing, f"{place} after {MOVE_S:.0f} seconds") from error

    # ------------------------------------------------------------ parts

    def _shards_of(self, vhost: VhostName) -> list[str]:
        state = self._view.metadata.state
        if vhost not in state.vhosts:
            raise NotFoundError(Thing("vhost", vhost), "check the name")
        return state.shards_of(vhost)

    async def _records(self, shards: Sequence[str]) -> dict[str, ShardRecord]:
        """Return the records of shards, in their order; new ones may have none yet."""
        records = await asyncio.gather(*map(self._view.host.read_record, shards))
        return {shard: record for shard, record in zip(shards, records, strict=True) if record is not None}

    async def _leads(self, broker: BrokerName, records: Mapping[str, ShardRecord]) -> bool:
        """Return whether a broker says that it leads: records may name one that died, or stands still."""
        found = {report.shard: report.epoch for report in await self._reports_of(broker, list(records))}
        return all(found.get(shard) == record.epoch for shard, record in records.items())

    async def _ask_leaders(self, others: Mapping[str, ShardRecord], to: BrokerName) -> None:
        """Ask the leaders to hand over: for the first shard before the others, which are to be where that one is."""
        (first, record), *further = others.items()
        await self._ask(BrokerName(record.leader.broker), first, to)
        await asyncio.gather(*(self._ask(BrokerName(record.leader.broker), shard, to) for shard, record in further))

    def _check_broker(self, broker: BrokerName) -> None:
        thing, known = Thing("broker", broker), self._view.metadata.state.brokers.get(broker)
        if known is None:
            raise NotFoundError(thing, "list the brokers with `penstock cluster status`")
        if known.is_draining:
            rule = "is drained, so that it leads nothing"
            raise PreconditionFailedError(
                thing, rule, "end that with `penstock cluster drain --undo`, or choose another"
            )
        if not self._view.is_alive(broker):
            raise PreconditionFailedError(thing, "is not alive", "start it, or choose another broker")

    async def _ask(self, leader: BrokerName, shard: str, to: BrokerName) -> None:
        """Ask the leader to hand over. However that ends, the record says what came of it."""
        if leader == self._view.metadata.me:
            await self._hand_over(shard, to)
            return
        await HAND_OVER.ask(self._view.member, leader, HandOverQuestion(shard, to), is_patient=True)

    async def _answer_hand_over(self, asked: HandOverQuestion) -> HandOverAnswer:
        return HandOverAnswer(await self._hand_over(asked.shard, BrokerName(asked.to)))

    async def _hand_over(self, shard: str, to: BrokerName) -> HandOver:
        replica = self._view.host.hosted(shard)
        return HandOver.NOT_LEADING if replica is None else await self._view.host.resign(replica, to)


def check_replica(thing: Thing, record: ShardRecord, broker: BrokerName) -> None:
    """Raise PreconditionFailedError unless a broker has a replica of a shard that is in sync."""
    held = sorted(set(record.replicas.values()))
    if broker not in held:
        way_out = f"choose one of {', '.join(held)}"
        raise PreconditionFailedError(thing, f"has no replica at broker '{broker}'", way_out)
    if broker not in {record.replicas[replica] for replica in record.in_sync}:
        way_out = "wait until `penstock cluster status` shows it in sync, or choose another broker"
        raise PreconditionFailedError(thing, f"has a replica at broker '{broker}' that is not in sync", way_out)
