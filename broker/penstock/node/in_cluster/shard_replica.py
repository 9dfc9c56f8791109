"""This broker's replica of one shard of a virtual host: it is opened, moved, recovered and deleted here.

The metadata says which brokers are to have a replica. A replica is opened when its broker is one of them, and closed
when it is not any more and the leader has taken it out of the record: see `leaving`. A replica with a corrupt log
begins anew: see `corrupt_log`. It knows nothing of queues.
"""

import asyncio
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.cluster.host import ClusterHost, ReplicaOptions
from penstock.cluster.hosted import HostedReplica
from penstock.cluster.record import BrokerName
from penstock.cluster.recovering import DISK_FAILED
from penstock.kit.clock import SystemClock
from penstock.kit.logging import logger
from penstock.model.errors import CorruptError, FaultError, PreconditionFailedError, StorageError, Thing
from penstock.model.names import VhostName
from penstock.native import Engine, ReplicaBackup
from penstock.node.in_cluster.corrupt_log import Repairs, is_marked
from penstock.node.in_cluster.leaving import AskLeader, delete_left, is_named
from penstock.node.in_cluster.log_copies import LogCopies
from penstock.node.in_cluster.recovered_log import close_halted, leave_lost_log, step_after_halt
from penstock.storage.leaving import complete_deletion
from penstock.storage.vhost_files import make_shard_directory, shard_directory

FOUND_S: Final = 3.0
"""The broker whose turn it is makes the record of a new shard at once, and each further one after this time more."""
LEAVE_S: Final = 0.5
"""A replica that is to go looks as often as this whether it may."""
DELETE_S_MIN, DELETE_S_MAX = 0.5, 30.0
"""The time between two attempts to delete a log, which grows."""
HALTED_S: Final = 1.0
"""A replica that has halted looks as often as this whether its shard was recovered, or whether it may begin anew."""
_log = logger("cluster")


@dataclass(frozen=True, slots=True)
class ShardPlace:
    """A shard of a virtual host, the folder of that, and the brokers that are to have it at first.

    `first` is the name of the virtual host's first shard: the broker whose turn it is to make its record makes all. A
    shard that is added later is made by the broker that leads the others, if that is known.
    """

    vhost: VhostName
    shard: str
    number: int
    first: str
    folder: Path
    brokers: Sequence[BrokerName]
    founder: BrokerName | None = None

    @property
    def directory(self) -> Path:
        """The folder of its log."""
        return shard_directory(self.folder, self.number)


@dataclass(frozen=True, slots=True)
class ReplicaSurroundings:
    """The parts that the replicas of all virtual hosts share."""

    host: ClusterHost
    engine: Engine
    options: ReplicaOptions
    copies: LogCopies
    ask_leader: AskLeader


class ShardReplica:
    """It runs from `run` to `close`. `heard` is called when its role, its record or its fault has changed."""

    def __init__(self, around: ReplicaSurroundings, place: ShardPlace, heard: Callable[[], None]) -> None:
        self.is_open = asyncio.Event()
        """Whether the log is open, or cannot be opened."""
        self.fault: str | None = None
        self.hosted: HostedReplica | None = None
        self.place = place
        self._host = around.host
        self._options = around.options
        self._copies = around.copies
        self._ask = around.ask_leader
        self._heard = heard
        self._me = around.host.me.name
        self._brokers = tuple(place.brokers)
        """The brokers that are to have a replica."""
        self._is_placed_anew = asyncio.Event()
        self._repairs = Repairs(around.host, around.ask_leader, SystemClock())

    def place_on(self, brokers: Sequence[BrokerName]) -> None:
        """Hear which brokers are to have a replica from now on."""
        self._brokers = tuple(brokers)
        self._is_placed_anew.set()
        if self.hosted is not None:
            self.hosted.wake()

    async def run(self) -> None:
        """Have a replica while this broker is to have one. It ends when a log that is not corrupt cannot be opened."""
        wait_s = DELETE_S_MIN
        while True:
            self._is_placed_anew.clear()
            try:
                if await self._has_part():
                    if not await self._serve_until_left():
                        return
                    wait_s = DELETE_S_MIN
                    continue
                is_deleted = await delete_left(self._host, self._ask, self.place.shard, self.place.directory)
            except CorruptError as fault:
                self._fail("replica not opened", fault)
                await self._begin_anew()
                continue
            except FaultError as fault:
                self._fail("replica not opened", fault)
                return
            self._set_open()
            with suppress(TimeoutError):
                async with asyncio.timeout(None if is_deleted else wait_s):
                    await self._is_placed_anew.wait()
            wait_s = min(2 * wait_s, DELETE_S_MAX)

    async def begin_backup(self) -> ReplicaBackup:
        """Fix a copy of the log. Raises PreconditionFailedError and StorageError."""
        if self.hosted is None:
            held = [broker for broker in self._brokers if broker != self._me]
            rule = f"cannot be backed up: it has no open replica at broker '{self._me}'"
            raise PreconditionFailedError(Thing("vhost", self.place.vhost), rule, f"ask {', '.join(held)}")
        return await self._copies.copy(self.place.vhost, self.place.shard, self.hosted)

    async def close(self) -> None:
        """Close the log; the caller has ended `run`."""
        if self.hosted is not None:
            await self._host.close(self.hosted)

    # ------------------------------------------------------------ parts

    async def _has_part(self) -> bool:
        """Return whether this broker is to have a replica, or has one that counts still. Raises StorageError."""
        place = self.place
        await asyncio.to_thread(complete_deletion, place.directory)
        await leave_lost_log(self._host, place.shard, place.directory)
        return self._me in self._brokers or await is_named(self._host, place.shard, place.directory)

    async def _serve_until_left(self) -> bool:
        """Open the log, and return when the replica has left the shard; return False if it cannot be opened."""
        told = tuple[BrokerName, ...]()
        founders = self._brokers if self._me in self._brokers else ()
        replica = await self._open(founders, self._turn(founders) * FOUND_S)
        while replica is not None:
            changed, role = replica.changed, replica.role
            if told != self._brokers:
                told = self._brokers
                await self._host.place(replica, told)
            if role.halted is not None:
                self.fault = role.halted
                self._heard()
                before, replica = replica, await self._after_halt(replica)
                told = told if replica is before else ()
                continue
            if self._me in self._brokers:
                await changed.wait()
            elif await self._leave(replica, changed):
                return True
        return False

    def _turn(self, founders: Sequence[BrokerName]) -> int:
        """Return how many brokers may make the record of a new shard before this one."""
        founder = self.place.founder
        if founder == self._me:
            return 0
        return turn_of(self._me, self.place.first, founders) + (founder is not None)

    async def _leave(self, replica: HostedReplica, changed: asyncio.Event) -> bool:
        """Close a replica that has left the shard, and return whether it has. It may wait for a moment."""
        record = self._host.known_record(self.place.shard)
        if record is not None and replica.replica not in record.replicas:
            _log.info("replica closed, as it has left the shard", vhost=self.place.vhost, shard=self.place.shard)
            self.hosted = None
            self._heard()
            await self._host.close(replica)
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await changed.wait()
        return False

    async def _open(self, founders: Sequence[BrokerName] = (), found_after_s: float = 0.0) -> HostedReplica | None:
        """Open the log; None where it cannot be opened. Raises CorruptError."""
        place = self.place
        try:
            await asyncio.to_thread(make_shard_directory, place.folder, place.number)
            opening = self._host.open(place.shard, place.directory, self._options, founders, found_after_s)
            self.hosted = await opening
            self.hosted.heard = self._heard
        except CorruptError:
            raise
        except FaultError as fault:
            self._fail("replica not opened", fault)
        self._set_open()
        return self.hosted

    def _fail(self, what: str, fault: FaultError) -> None:
        self.fault = str(fault)
        _log.error(what, vhost=self.place.vhost, shard=self.place.shard, reason=self.fault)
        self._set_open()

    def _set_open(self) -> None:
        self.is_open.set()
        self._heard()

    async def _after_halt(self, replica: HostedReplica) -> HostedReplica | None:
        """Return the replica that goes on after an operator has recovered the shard, or this one for another look.

        Raises CorruptError for one that begins anew. It is closed then.
        """
        step = await step_after_halt(self._host, self.place.shard, replica, replica.role)
        place = self.place
        if step is None:
            await asyncio.sleep(HALTED_S)
            await self._close_corrupt(replica)
            return replica
        self.hosted = None
        try:
            await close_halted(self._host, place.shard, place.directory, replica, step)
            await leave_lost_log(self._host, place.shard, place.directory)
        except FaultError as fault:
            self._fail("halted replica not closed", fault)
            return None
        self.fault = None
        return await self._open(self._brokers)

    async def _close_corrupt(self, replica: HostedReplica) -> None:
        """Close a halted replica that begins anew, and raise CorruptError. Nothing happens to any other one."""
        place = self.place
        if replica.role.halt != DISK_FAILED or not await asyncio.to_thread(is_marked, place.directory):
            return
        if await self._repairs.may_begin_anew(place.shard, place.directory):
            self.hosted = None
            self._heard()
            await self._host.close(replica)
            raise CorruptError(Thing("replica", str(place.directory)), "has a corrupt log", "check the disk")

    async def _begin_anew(self) -> None:
        """Set the corrupt log aside as soon as another broker leads, or return when the shard is placed anew."""
        place = self.place
        while True:
            if await self._repairs.may_begin_anew(place.shard, place.directory):
                try:
                    await self._repairs.set_aside(place.shard, place.directory)
                except StorageError as fault:  # the disk may be full: the next try is later
                    self._fail("corrupt log not set aside", fault)
                else:
                    self.fault = None
                    return
            with suppress(TimeoutError):
                async with asyncio.timeout(HALTED_S):
                    await self._is_placed_anew.wait()
                    return


def turn_of(broker: BrokerName, shard: str, founders: Sequence[BrokerName]) -> int:
    """Return how many brokers may make the record of a new shard before this one: the first ones are spread."""
    if not founders:
        return 0
    first = zlib.crc32(shard.encode()) % len(founders)
    return (list(founders).index(broker) - first) % len(founders)
