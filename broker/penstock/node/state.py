"""The broker's state for status calls, probes and scrapes. This module reads and never changes anything."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Protocol

from penstock.kit.clock import Clock
from penstock.kit.settings import GROUP_SERIES_MAX, PARTITION_SERIES_MAX
from penstock.model.errors import FaultError, RefusedError
from penstock.services.ports import (
    Corruption,
    GroupTotals,
    NodeState,
    PartitionTotals,
    Recovery,
    ShardTotals,
    StreamTotals,
    VhostTotals,
)
from penstock.vhost.all_vhosts import AllVhosts
from penstock.vhost.streams import PartitionStatus

_STATM = Path("/proc/self/statm")


class Counters(Protocol):
    """The part of the native engine that is read here."""

    def metrics(self) -> dict[str, float]: ...


class Phase(Enum):
    """Where a broker is between its start and its stop."""

    STARTING = "the broker is starting"
    READY = ""
    STOPPING = "the broker is stopping"


MOVES: dict[Phase, frozenset[Phase]] = {
    Phase.STARTING: frozenset({Phase.READY, Phase.STOPPING}),
    Phase.READY: frozenset({Phase.STOPPING}),
    Phase.STOPPING: frozenset(),
}


class BrokerState:
    """Implements `services.ports.Node`. Empty of vhosts and counters until `opened`."""

    def __init__(self, version: str, node: str, data_dir: str, clock: Clock) -> None:
        self.phase = Phase.STARTING
        self.listeners: dict[str, str] = {}
        self.recovery = Recovery()
        self.data_id = ""
        self.data_format = 0
        self.expiries: Callable[[], Mapping[str, float]] = dict
        """When the served certificates expire; without TLS there are none."""
        self._version = version
        self._node = node
        self._data_dir = data_dir
        self._clock = clock
        self._started_at = clock.monotonic()
        self._engine: Counters | None = None
        self._vhosts: AllVhosts | None = None
        self._corruptions: Callable[[], list[Corruption]] = list
        self._more_counts: list[Callable[[], Mapping[str, float]]] = []
        self._reason_not_ready: Callable[[], str] = str
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def opened(
        self,
        engine: Counters,
        vhosts: AllVhosts,
        recovery: Recovery,
        corruptions: Callable[[], list[Corruption]] = list,
    ) -> None:
        self._engine, self._vhosts, self._corruptions = engine, vhosts, corruptions
        self.recovery = recovery

    def also_count(self, counts: Callable[[], Mapping[str, float]]) -> None:
        """Add figures that the engine does not have to `metrics`."""
        self._more_counts.append(counts)

    def also_ready(self, reason_not_ready: Callable[[], str]) -> None:
        """Ask this, too, whether the broker is ready."""
        self._reason_not_ready = reason_not_ready

    def move(self, phase: Phase) -> None:
        assert phase in MOVES[self.phase], (self.phase, phase)
        self.phase = phase

    @property
    def uptime_seconds(self) -> float:
        return self._clock.monotonic() - self._started_at

    def state(self) -> NodeState:
        times = os.times()
        return NodeState(
            version=self._version,
            node=self._node,
            data_dir=self._data_dir,
            uptime_seconds=self.uptime_seconds,
            cpu_seconds=times.user + times.system,
            resident_bytes=int(_STATM.read_text().split()[1]) * self._page_bytes,
            listeners=self.listeners,
            recovery=self.recovery,
            data_id=self.data_id,
            data_format=self.data_format,
            expiries=self.expiries(),
        )

    def metrics(self) -> Mapping[str, float]:
        metrics = dict(self._engine.metrics()) if self._engine is not None else {}
        for counts in self._more_counts:
            metrics.update(counts())
        return metrics

    def corruptions(self) -> list[Corruption]:
        return self._corruptions()

    def vhost_totals(self) -> list[VhostTotals]:
        totals: list[VhostTotals] = []
        for vhost in self._vhosts.all() if self._vhosts is not None else []:
            try:
                counts, by_shard = vhost.totals(), vhost.shard_totals()
            except FaultError:
                continue  # its log has failed; `reason_not_live` tells so
            shards = tuple(ShardTotals(shard.ready_count, shard.unacked_count) for shard in by_shard)
            messages, wait_seconds = (counts.ready_count, counts.unacked_count), counts.lock_wait_ns / 1e9
            totals.append(VhostTotals(vhost.name, vhost.queue_count, *messages, shards, wait_seconds))
        return totals

    def stream_totals(self) -> StreamTotals:
        totals = StreamTotals()
        left_out = groups_left_out = 0
        for vhost in self._vhosts.all() if self._vhosts is not None else []:
            room = PARTITION_SERIES_MAX - len(totals.partitions)
            try:
                states, groups = vhost.streams.states_now(room)
            except (FaultError, RefusedError):
                continue  # its log has failed; `reason_not_live` tells so
            left_out += vhost.streams.partition_count - len(states)
            shown = groups[: GROUP_SERIES_MAX - len(totals.groups)]
            groups_left_out += len(groups) - len(shown)
            totals.partitions.extend(_partition_totals(vhost.name, status) for status in states)
            totals.groups.extend(GroupTotals(vhost.name, group.partition, group.name, group.lag) for group in shown)
        return replace(totals, partitions_left_out=left_out, groups_left_out=groups_left_out)

    def reason_not_started(self) -> str:
        return self.phase.value if self.phase is Phase.STARTING else ""

    def reason_not_ready(self) -> str:
        return self.phase.value or self._reason_not_ready()

    def reason_not_live(self) -> str:
        """Return the reason, or an empty text.

        A vhost whose disk failed serves again only after a restart. A broker that is stopping is live.
        """
        if self._vhosts is None or self.phase is not Phase.READY:
            return ""
        faults = [f"vhost '{vhost.name}' has stopped: {vhost.fault}" for vhost in self._vhosts.all() if vhost.fault]
        return "; ".join(faults)


def _partition_totals(vhost: str, status: PartitionStatus) -> PartitionTotals:
    state = status.state
    return PartitionTotals(vhost, status.name, state.first, state.next, state.bytes, state.reader_count)
