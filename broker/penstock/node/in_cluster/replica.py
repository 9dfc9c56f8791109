"""This broker's replica of a virtual host's shard: it follows, or its queues are open in the engine while it leads.

A term begins once everything is applied here that the metadata has answered: a queue that this broker did not know yet
would lose its messages otherwise.
"""

import asyncio
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from penstock.cluster.host import ClusterHost, ReplicaOptions
from penstock.cluster.hosted import HostedReplica
from penstock.cluster.record import BrokerName
from penstock.kit.logging import logger
from penstock.kit.tasks import spawn
from penstock.metadata.effects import Change
from penstock.model.errors import FaultError, NotLedError, PreconditionFailedError, Thing
from penstock.model.names import VhostName
from penstock.native import Engine, ReplicaBackup
from penstock.node.in_cluster.log_copies import LogCopies
from penstock.node.in_cluster.metadata import Metadata
from penstock.node.in_cluster.owner import ClusterOwner
from penstock.node.in_cluster.recovered_log import close_halted, leave_lost_log, step_after_halt
from penstock.node.in_cluster.term import Term

RETRY_S: Final = 0.1
FOUND_S: Final = 3.0
"""The broker whose turn it is makes the record of a new shard at once, and each further one after this time more."""
HALTED_S: Final = 1.0
"""A replica that has halted looks as often as this whether an operator has recovered its shard."""
_log = logger("cluster")


@dataclass(frozen=True, slots=True)
class ShardPlace:
    """A shard of a virtual host, where its log is, and the brokers that have it."""

    vhost: VhostName
    shard: str
    directory: Path
    brokers: Sequence[BrokerName]


@dataclass(frozen=True, slots=True)
class ReplicaSurroundings:
    """The parts that the replicas of all virtual hosts share."""

    host: ClusterHost
    engine: Engine
    options: ReplicaOptions
    copies: LogCopies


class VhostReplica:
    """It runs from `run` to `close`. Implements `owner.LeaderPlace`."""

    def __init__(self, around: ReplicaSurroundings, place: ShardPlace) -> None:
        self.owner: ClusterOwner
        """It is set before `run`."""
        self.is_open = asyncio.Event()
        """Whether the log is open, or cannot be opened."""
        self.fault: str | None = None
        self._host = around.host
        self._engine = around.engine
        self._options = around.options
        self._copies = around.copies
        self._place = place
        self._replica: HostedReplica | None = None
        self._term: Term | None = None
        self._applying: asyncio.Task[None] | None = None

    def leader(self) -> BrokerName | None:
        """Return the broker that leads; one that knows the leader, where there is no replica."""
        if self._replica is not None:
            return self._host.leader_name(self._replica.shard)
        others = (broker for broker in self._place.brokers if self._host.is_connected(broker))
        return None if self._host.me.name in self._place.brokers else next(others, None)

    def take(self, changes: Sequence[Change]) -> None:
        """Pass changes of the topology to the queues, if this broker leads."""
        if self._term is not None:
            self._term.put(changes)

    async def run(self, metadata: Metadata, leads: Callable[[VhostName], None]) -> None:
        """Open the log, and lead whenever the replica may; `leads` hears of each term that began or ended."""
        place = self._place
        if metadata.me not in place.brokers:
            self.is_open.set()
            return
        replica = await self._open(turn_of(metadata.me, place) * FOUND_S)
        self.is_open.set()
        while replica is not None:
            changed, role = replica.changed, replica.role
            if role.halted is not None:
                self.fault = role.halted
            if self._term is not None and self._term.epoch != role.epoch:
                self._end_term()
                leads(place.vhost)
            may_lead = self.fault is None and role.appends
            if self._term is not None:
                self.owner.set_delivers(delivers=role.delivers)
            if self._term is None and role.epoch is not None and may_lead:
                if await self._begin_term(replica, metadata, role.epoch):
                    leads(place.vhost)
                else:
                    await asyncio.sleep(RETRY_S)
                continue
            if role.halted is not None:
                replica = await self._after_halt(replica)
                continue
            await changed.wait()

    async def _open(self, found_after_s: float = 0.0) -> HostedReplica | None:
        """Open the log; None where it cannot be opened."""
        place = self._place
        try:
            await leave_lost_log(self._host, place.shard, place.directory)
            opening = self._host.open(place.shard, place.directory, self._options, place.brokers, found_after_s)
            self._replica = await opening
        except FaultError as fault:
            self.fault = str(fault)
            _log.error("replica not opened", vhost=place.vhost, reason=self.fault)
        return self._replica

    async def _after_halt(self, replica: HostedReplica) -> HostedReplica | None:
        """Return the replica that goes on after an operator has recovered the shard, or this one for another look."""
        step = await step_after_halt(self._host, self._place.shard, replica, replica.role)
        if step is None:
            await asyncio.sleep(HALTED_S)
            return replica
        place = self._place
        self._replica = None
        try:
            await close_halted(self._host, place.shard, place.directory, replica, step)
        except FaultError as fault:
            self.fault = str(fault)
            _log.error("halted replica not closed", vhost=place.vhost, reason=self.fault)
            return None
        self.fault = None
        return await self._open()

    async def begin_backup(self) -> ReplicaBackup:
        """Fix a copy of the log. Raises PreconditionFailedError and StorageError."""
        if self._replica is None:
            held = [broker for broker in self._place.brokers if broker != self._host.me.name]
            rule = f"cannot be backed up: it has no open replica at broker '{self._host.me.name}'"
            raise PreconditionFailedError(Thing("vhost", self._place.vhost), rule, f"ask {', '.join(held)}")
        return await self._copies.copy(self._place.vhost, self._place.shard, self._replica)

    async def hand_over(self) -> None:
        """Let another broker lead, as far as that is possible at once."""
        if self._replica is not None:
            await self._host.resign(self._replica)

    async def close(self) -> None:
        """Close the log; the caller has ended `run`."""
        self._end_term()
        if self._replica is not None:
            await self._host.close(self._replica)

    async def _begin_term(self, replica: HostedReplica, metadata: Metadata, epoch: int) -> bool:
        """Open the queues; return whether they are, as the term may be over already."""
        vhost = self._place.vhost
        try:
            await metadata.latest()
            shard = await replica.lead(self._engine, vhost, epoch)
        except FaultError as fault:
            _log.warning("queues not opened", vhost=vhost, epoch=epoch, reason=str(fault))
            return False
        if shard is None:
            return False
        term = self._term = Term(vhost, shard, epoch)
        try:
            await term.fill(self.owner.topology)
        except NotLedError:  # the term is over
            self._end_term()
            return False
        except FaultError as fault:
            # The log is with queues that lack a part of the topology: only another process goes on.
            self.fault = str(fault)
            _log.error("queues not filled", vhost=vhost, epoch=epoch, reason=self.fault)
            return True
        self._applying = spawn(term.run(), name=f"term of vhost {vhost}", on_bug=partial(self._lacks_change, term))
        self.owner.begin_term(term, delivers=replica.role.delivers)
        _log.info("queues opened", vhost=vhost, epoch=epoch)
        return True

    def _lacks_change(self, term: Term, error: Exception) -> None:
        """Have another broker lead: clients have answers for changes that these queues do not have."""
        if self._term is term:
            self.fault = str(error)
            self._applying = None
            self._end_term()
            spawn(self.hand_over(), name=f"hand-over of vhost {self._place.vhost}")

    def _end_term(self) -> None:
        self._term = None
        self.owner.end_term()
        if self._applying is not None:
            self._applying.cancel()
            self._applying = None


def turn_of(broker: BrokerName, place: ShardPlace) -> int:
    """Return how many brokers may make the record of a new shard before this one: the first ones are spread."""
    first = zlib.crc32(place.shard.encode()) % len(place.brokers)
    return (list(place.brokers).index(broker) - first) % len(place.brokers)
