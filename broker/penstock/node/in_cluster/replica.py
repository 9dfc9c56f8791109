"""This broker's replica of a virtual host's shard: it follows, or its queues are open in the engine while it leads.

A term begins once everything is applied here that the metadata has answered: a queue that this broker did not know yet
would lose its messages otherwise.

The metadata says which brokers are to have a replica. A replica is opened when its broker is one of them, and closed
when it is not any more and the leader has taken it out of the record: see `leaving`.
"""

import asyncio
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from penstock.cluster.host import ClusterHost, ReplicaOptions
from penstock.cluster.hosted import HostedReplica
from penstock.cluster.moves import is_last_to_leave
from penstock.cluster.record import BrokerName
from penstock.cluster.shard_calls import HandOver
from penstock.kit.clock import Clock, SystemClock
from penstock.kit.logging import logger
from penstock.kit.tasks import spawn
from penstock.metadata.effects import Change
from penstock.model.errors import FaultError, NotLedError, PreconditionFailedError, Thing
from penstock.model.names import VhostName
from penstock.native import Engine, ReplicaBackup, ReplicaRole
from penstock.node.in_cluster.leaving import AskLeader, delete_left, is_named
from penstock.node.in_cluster.log_copies import LogCopies
from penstock.node.in_cluster.metadata import Metadata
from penstock.node.in_cluster.owner import ClusterOwner
from penstock.node.in_cluster.recovered_log import close_halted, leave_lost_log, step_after_halt
from penstock.node.in_cluster.term import Term
from penstock.node.in_cluster.tries import Tries
from penstock.storage.leaving import complete_deletion

RETRY_S: Final = 0.1
FOUND_S: Final = 3.0
"""The broker whose turn it is makes the record of a new shard at once, and each further one after this time more."""
LEAVE_S: Final = 0.5
"""A replica that is to go looks as often as this whether it may."""
DELETE_S_MIN, DELETE_S_MAX = 0.5, 30.0
"""The time between two attempts to delete a log, which grows."""
HALTED_S: Final = 1.0
"""A replica that has halted looks as often as this whether an operator has recovered its shard."""
_log = logger("cluster")


@dataclass(frozen=True, slots=True)
class ShardPlace:
    """A shard of a virtual host, where its log is, and the brokers that are to have it at first."""

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
    ask_leader: AskLeader


class VhostReplica:
    """It runs from `run` to `close`. Implements `owner.LeaderPlace`."""

    def __init__(self, around: ReplicaSurroundings, place: ShardPlace, clock: Clock | None = None) -> None:
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
        self._ask = around.ask_leader
        self._clock = clock or SystemClock()
        self._me = around.host.me.name
        self._brokers = tuple(place.brokers)
        """The brokers that are to have a replica."""
        self._is_placed_anew = asyncio.Event()
        self._tries = Tries()
        self._replica: HostedReplica | None = None
        self._term: Term | None = None
        self._applying: asyncio.Task[None] | None = None

    def leader(self) -> BrokerName | None:
        """Return the broker that leads; one that knows the leader, where there is no replica."""
        if self._replica is not None:
            return self._host.leader_name(self._replica.shard)
        others = (broker for broker in self._brokers if self._host.is_connected(broker))
        return None if self._me in self._brokers else next(others, None)

    def place(self, brokers: Sequence[BrokerName]) -> None:
        """Hear which brokers are to have a replica from now on."""
        self._brokers = tuple(brokers)
        self._is_placed_anew.set()
        if self._replica is not None:
            self._replica.wake()

    def take(self, changes: Sequence[Change]) -> None:
        """Pass changes of the topology to the queues, if this broker leads."""
        if self._term is not None:
            self._term.put(changes)

    async def run(self, metadata: Metadata, leads: Callable[[VhostName], None]) -> None:
        """Have a replica while this broker is to have one, and lead whenever it may.

        `leads` hears of each term that began or ended. It ends when the log cannot be opened.
        """
        wait_s = DELETE_S_MIN
        while True:
            self._is_placed_anew.clear()
            try:
                if await self._has_part():
                    if not await self._serve_until_left(metadata, leads):
                        return
                    wait_s = DELETE_S_MIN
                    continue
                is_deleted = await delete_left(self._host, self._ask, self._place.shard, self._place.directory)
            except FaultError as fault:
                self._fail("replica not opened", fault)
                return
            self.is_open.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(None if is_deleted else wait_s):
                    await self._is_placed_anew.wait()
            wait_s = min(2 * wait_s, DELETE_S_MAX)

    async def _has_part(self) -> bool:
        """Return whether this broker is to have a replica, or has one that counts still. Raises StorageError."""
        place = self._place
        await asyncio.to_thread(complete_deletion, place.directory)
        await leave_lost_log(self._host, place.shard, place.directory)
        return self._me in self._brokers or await is_named(self._host, place.shard, place.directory)

    async def _serve_until_left(self, metadata: Metadata, leads: Callable[[VhostName], None]) -> bool:
        """Open the log, and return when the replica has left the shard; return False if it cannot be opened."""
        told = tuple[BrokerName, ...]()
        founders = self._brokers if self._me in self._brokers else ()
        replica = await self._open(founders, turn_of(self._me, self._place.shard, founders) * FOUND_S)
        self.is_open.set()
        while replica is not None:
            changed, role = replica.changed, replica.role
            if told != self._brokers:
                told = self._brokers
                await self._host.place(replica, told)
            if await self._follow_role(replica, role, metadata, leads):
                continue
            if role.halted is not None:
                before, replica = replica, await self._after_halt(replica)
                told = told if replica is before else ()
                continue
            if self._me in self._brokers:
                await changed.wait()
            elif await self._leave(replica, changed):
                return True
        return False

    async def _follow_role(
        self, replica: HostedReplica, role: ReplicaRole, metadata: Metadata, leads: Callable[[VhostName], None]
    ) -> bool:
        """End the term and begin the next one by the role; return whether to look at the role again at once."""
        vhost = self._place.vhost
        if role.halted is not None:
            self.fault = role.halted
        if self._term is not None and self._term.epoch != role.epoch:
            self._end_term()
            leads(vhost)
        may_lead = self.fault is None and role.appends
        if self._term is not None:
            self.owner.set_delivers(delivers=role.delivers)
        if self._term is not None or role.epoch is None or not may_lead:
            return False
        if await self._begin_term(replica, metadata, role.epoch):
            leads(vhost)
        else:
            await asyncio.sleep(RETRY_S)
        return True

    async def _leave(self, replica: HostedReplica, changed: asyncio.Event) -> bool:
        """Take the next step of a replica that is to go, and return whether it is closed. It may wait for a moment."""
        record = self._host.known_record(self._place.shard)
        if record is not None and replica.replica not in record.replicas:
            _log.info("replica closed, as it has left the shard", vhost=self._place.vhost)
            self._end_term()
            self._replica = None
            await self._host.close(replica)
            return True
        if record is not None and replica.role.epoch is not None and is_last_to_leave(record, self._brokers, self._me):
            heirs, now = frozenset(self._host.heirs_of(replica.shard)), self._clock.monotonic()
            if heirs and self._tries.is_due(replica.shard, heirs, now):
                outcome = await self._host.resign(replica)
                if outcome in (HandOver.NO_HEIR, HandOver.NOT_TAKEN):
                    self._tries.fail(replica.shard, heirs, self._clock.monotonic())
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await changed.wait()
        return False

    async def _open(self, founders: Sequence[BrokerName] = (), found_after_s: float = 0.0) -> HostedReplica | None:
        """Open the log; None where it cannot be opened."""
        place = self._place
        try:
            opening = self._host.open(place.shard, place.directory, self._options, founders, found_after_s)
            self._replica = await opening
        except FaultError as fault:
            self._fail("replica not opened", fault)
        return self._replica

    def _fail(self, what: str, fault: FaultError) -> None:
        self.fault = str(fault)
        self.is_open.set()
        _log.error(what, vhost=self._place.vhost, reason=self.fault)

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
            await leave_lost_log(self._host, place.shard, place.directory)
        except FaultError as fault:
            self._fail("halted replica not closed", fault)
            return None
        self.fault = None
        return await self._open(self._brokers)

    async def begin_backup(self) -> ReplicaBackup:
        """Fix a copy of the log. Raises PreconditionFailedError and StorageError."""
        if self._replica is None:
            held = [broker for broker in self._brokers if broker != self._host.me.name]
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


def turn_of(broker: BrokerName, shard: str, founders: Sequence[BrokerName]) -> int:
    """Return how many brokers may make the record of a new shard before this one: the first ones are spread."""
    if not founders:
        return 0
    first = zlib.crc32(shard.encode()) % len(founders)
    return (list(founders).index(broker) - first) % len(founders)
