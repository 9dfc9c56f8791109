"""The shards of the cluster for its operators: who leads them, and how far their replicas are.

Records of shards come from the coordinator. How far a replica is, its leader alone knows, so the leaders are asked. A
coordinator or a leader that does not answer soon leaves gaps, and no more.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from penstock.cluster.meta.state import MetaState
from penstock.cluster.record import BrokerName, ShardRecord
from penstock.cluster.shard_calls import SHARDS_MAX, DifferencesReport, ShardReport
from penstock.kit.clock import SystemClock
from penstock.model.errors import StorageError
from penstock.model.names import VhostName
from penstock.node.in_cluster.broker_changes import BrokerChanges
from penstock.node.in_cluster.cluster_view import ClusterView
from penstock.node.in_cluster.draining import Draining
from penstock.node.in_cluster.leader_reports import LeaderReports
from penstock.node.in_cluster.moving import LeaderMoves
from penstock.node.in_cluster.recoveries import Recoveries
from penstock.node.in_cluster.replica_moves import ReplicaMoves
from penstock.services.ports import (
    ClusterBroker,
    ClusterShard,
    ClusterStatus,
    MovedLeader,
    PlacedReplicas,
    RecoveredShard,
    ShardRecovery,
    ShardReplica,
)
from penstock.storage.cluster_json import META

REASONS_MAX: Final = 3
READS_MAX: Final = 16
"""Questions to the coordinator at once."""
COORDINATOR_S: Final = 2.0
"""The time for all questions to the coordinator together. Records that it has not sent by then are not known."""


@dataclass(frozen=True, slots=True)
class _Records:
    """Records of shards, and why the coordinator sent no answer for others."""

    found: Mapping[str, ShardRecord]
    unknown: Mapping[str, str]

    @property
    def fault(self) -> str:
        """Why the coordinator did not answer all questions; empty if it did."""
        reasons = sorted(set(self.unknown.values()))
        return "; ".join(reasons[:REASONS_MAX])


AskDifferences = Callable[[BrokerName, Iterable[str]], Awaitable[Sequence[DifferencesReport]]]
"""Returns the differences that a broker has found at its replicas of some shards."""


class ClusterShards:
    """Implements `services.ports.Cluster`."""

    def __init__(self, view: ClusterView, reports: LeaderReports, differences: AskDifferences | None = None) -> None:
        self._view = view
        self._ask = reports.ask
        self._ask_differences = differences
        self._moves = LeaderMoves(view, reports.ask)
        self._replica_moves = ReplicaMoves(view)
        self._broker_changes = BrokerChanges(view)
        self._recoveries = Recoveries(view, SystemClock())
        self.draining = Draining(view)

    @property
    def broker(self) -> str:
        return self._view.metadata.me

    async def move(self, vhost: VhostName, to: str) -> MovedLeader:
        return await self._moves.move(vhost, BrokerName(to))

    async def move_replica(self, vhost: VhostName, source: str, to: str) -> PlacedReplicas:
        return await self._replica_moves.move(vhost, BrokerName(source), BrokerName(to))

    async def add_broker(self, broker: str, peers: str) -> bool:
        return await self._broker_changes.add(BrokerName(broker), peers)

    async def remove_broker(self, broker: str) -> None:
        await self._broker_changes.remove(BrokerName(broker))

    async def drain(self, broker: str, *, is_draining: bool) -> bool:
        return await self.draining.set(BrokerName(broker), is_draining=is_draining)

    async def recover(
        self, vhost: VhostName, number: int, broker: str, by: str, *, accepts_loss: bool
    ) -> RecoveredShard:
        return await self._recoveries.recover(vhost, number, BrokerName(broker), by, accepts_loss=accepts_loss)

    async def status(self) -> ClusterStatus:
        view = self._view
        names = dict(_names(view.metadata.state))
        records = await self._records(names)
        reports, differences = await asyncio.gather(self._reports(records.found), self._differences(records.found))
        placement = view.metadata.state.placement
        shards = [
            _shard((name, vhost), records, reports.get(name), placement.get(name, ()), differences.get(name, {}))
            for name, vhost in names.items()
        ]
        return ClusterStatus(view.cluster, view.metadata.me, self._brokers(), shards, records.fault)

    # ------------------------------------------------------------ parts

    def _brokers(self) -> list[ClusterBroker]:
        view = self._view
        return [
            ClusterBroker(
                name,
                *(known.addresses.peers, known.addresses.grpc, known.addresses.amqp),
                is_alive=view.is_alive(name),
                is_connected=name == view.metadata.me or view.host.is_connected(name),
                is_draining=known.is_draining,
            )
            for name, known in sorted(view.metadata.state.brokers.items())
        ]

    async def _records(self, shards: Iterable[str]) -> _Records:
        """Return the records that are known here, and the others as far as the coordinator sends them in time."""
        host = self._view.host
        known = {shard: host.known_record(shard) for shard in shards}
        found = {shard: record for shard, record in known.items() if record is not None}
        unknown = dict.fromkeys(known.keys() - found.keys(), f"no answer within {COORDINATOR_S:.0f} s")
        at_once = asyncio.Semaphore(READS_MAX)

        async def read(shard: str) -> None:
            async with at_once:
                try:
                    record = await host.read_record(shard)
                except StorageError as error:
                    unknown[shard] = str(error)
                    return
            del unknown[shard]
            if record is not None:
                found[shard] = record

        with suppress(TimeoutError):
            async with asyncio.timeout(COORDINATOR_S):
                await asyncio.gather(*map(read, sorted(unknown)))
        return _Records(found, unknown)

    async def _differences(self, records: Mapping[str, ShardRecord]) -> dict[str, dict[str, DifferencesReport]]:
        """Return the replicas that differ from their leaders, by shard and replica, as their brokers say."""
        by_broker: dict[BrokerName, list[str]] = {}
        for shard, record in records.items():
            for broker in record.replicas.values():
                by_broker.setdefault(BrokerName(broker), []).append(shard)
        ask = self._ask_differences
        if ask is None:
            return {}
        found: dict[str, dict[str, DifferencesReport]] = {}
        for answer in await asyncio.gather(*(ask(broker, shards) for broker, shards in by_broker.items())):
            for report in answer:
                found.setdefault(report.shard, {})[report.replica] = report
        return found

    async def _reports(self, records: Mapping[str, ShardRecord]) -> dict[str, ShardReport]:
        """Return what the leaders of shards say of them."""
        by_leader: dict[BrokerName, list[str]] = {}
        for shard, record in records.items():
            by_leader.setdefault(BrokerName(record.leader.broker), []).append(shard)
        asked = [
            self._ask(leader, shards[start : start + SHARDS_MAX])
            for leader, shards in by_leader.items()
            for start in range(0, len(shards), SHARDS_MAX)
        ]
        answers = await asyncio.gather(*asked)
        return {report.shard: report for answer in answers for report in answer}


def shard_names(state: MetaState) -> list[str]:
    """Return the names of all shards, that of the metadata first."""
    return [shard for shard, _ in _names(state)]


def _names(state: MetaState) -> Iterator[tuple[str, VhostName | None]]:
    yield META, None
    for vhost in sorted(state.vhosts):
        yield from ((shard, vhost) for shard in state.shards_of(vhost))


def _shard(
    names: tuple[str, VhostName | None],
    records: _Records,
    report: ShardReport | None,
    placed: Sequence[BrokerName],
    differences: Mapping[str, DifferencesReport],
) -> ClusterShard:
    name, vhost = names
    record = records.found.get(name)
    if record is None:
        is_unknown = name in records.unknown
        return ClusterShard(
            name, vhost, leader="", epoch=0, min_in_sync=0, replicas=(), is_unknown=is_unknown, placed=placed
        )
    current = report if report is not None and report.epoch == record.epoch else None
    replicas = [
        ShardReplica(
            *(broker, replica, replica in record.in_sync, _lag_bytes(record, current, replica)),
            *((each.records, each.first) if (each := differences.get(replica)) is not None else ()),
        )
        for replica, broker in sorted(record.replicas.items(), key=lambda each: (each[1], each[0]))
    ]
    return ClusterShard(
        name,
        vhost,
        record.leader.broker,
        record.epoch,
        record.min_in_sync,
        replicas,
        is_led=current is not None,
        end_bytes=None if current is None else current.end,
        recoveries=[
            ShardRecovery(each.epoch, each.broker, each.replica, each.end, each.by, each.at_ms)
            for each in record.recoveries
        ],
        placed=placed,
    )


def _lag_bytes(record: ShardRecord, report: ShardReport | None, replica: str) -> int | None:
    if report is None:
        return None
    if replica == record.leader.replica:
        return 0
    position = report.acknowledged.get(replica)
    return None if position is None else max(0, report.end - position)
