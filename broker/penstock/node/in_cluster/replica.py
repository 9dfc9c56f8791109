"""This broker's replicas of a virtual host's shards: they follow, or the queues are open in the engine while it leads.

One broker leads all shards: a term begins once this broker leads each of them and everything is applied here that the
metadata has answered, because a queue that this broker did not know yet would lose its messages otherwise. It ends for
all shards when it ends for one. A further shard that this broker leads without the first one is handed over to the
broker that leads that: see `cluster.gathering`.
"""

import asyncio
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from penstock.cluster.hosted import HostedReplica
from penstock.cluster.moves import is_last_to_leave
from penstock.cluster.record import BrokerName
from penstock.cluster.shard_calls import HandOver
from penstock.kit.clock import Clock, SystemClock
from penstock.kit.logging import logger
from penstock.kit.tasks import spawn
from penstock.metadata.effects import Change, DropQueue
from penstock.model.errors import FaultError, NotLedError
from penstock.model.names import VhostName
from penstock.native import Replica, ReplicaRole, Shard
from penstock.node.in_cluster.metadata import Metadata
from penstock.node.in_cluster.owner import ClusterOwner
from penstock.node.in_cluster.remote_leader import RemoteLeader
from penstock.node.in_cluster.shard_replica import ReplicaSurroundings, ShardPlace, ShardReplica
from penstock.node.in_cluster.term import Term
from penstock.node.in_cluster.tries import Tries
from penstock.storage.backup import ClosableLog
from penstock.storage.shard_copies import ShardCopies

RETRY_S: Final = 0.1
LOOK_S: Final = 0.5
"""A broker that leads a shard and has no term looks as often as this whether it is to hand over."""
SETTLED_S: Final = 0.4
"""Shards are handed over to the leader of the first one when none of them was elected for this time."""
IDLE_FIRST_S, IDLE_LONGEST_S = 0.2, 5.0
"""The time between two attempts to hand over a shard without a term, which grows: no publisher is stopped by them."""
_log = logger("cluster")


@dataclass(frozen=True, slots=True)
class VhostPlace:
    """A virtual host, its shards by their numbers, the folder with their logs, and their brokers at first."""

    vhost: VhostName
    shards: Sequence[str]
    folder: Path
    brokers: Sequence[BrokerName]


class VhostReplica:
    """It runs from `run` to `close`. Implements `owner.LeaderPlace`.

    Invariant: `_term` is there only while the engine has the queues of all shards.
    """

    def __init__(self, around: ReplicaSurroundings, place: VhostPlace, clock: Clock | None = None) -> None:
        self.owner: ClusterOwner
        """It is set before `run`."""
        self._host = around.host
        self._engine = around.engine
        self._vhost = place.vhost
        self._clock = clock or SystemClock()
        self._remote_leader = RemoteLeader(lambda: around.host.read_record(place.shards[0]), self._clock)
        self._me = around.host.me.name
        self._brokers = tuple(place.brokers)
        self._changed = asyncio.Event()
        self._known_leader: BrokerName | None = None
        self._fault: str | None = None
        self._tries = Tries()
        self._idle_tries = Tries(IDLE_FIRST_S, IDLE_LONGEST_S)
        self._epochs = tuple[int, ...]()
        self._epochs_since = 0.0
        """The epochs of the shards at the last look, and since when they are the same."""
        self._term: Term | None = None
        self._applying: asyncio.Task[None] | None = None
        # Leaders of different virtual hosts are spread, those of one are together.
        options = replace(around.options, order=zlib.crc32(place.shards[0].encode()) << 32)
        self._around = replace(around, options=options)
        self._folder = place.folder
        self._shards: list[ShardReplica] = []
        self._running: dict[int, asyncio.Task[None]] = {}
        self._gathering: set[asyncio.Task[None]] = set()
        self.grow(place.shards)

    @property
    def fault(self) -> str | None:
        """Why this broker cannot lead the virtual host, or None."""
        return self._fault or next((shard.fault for shard in self._shards if shard.fault is not None), None)

    def leader(self) -> BrokerName | None:
        """Return the broker that leads all shards; one that knows the leader, where there is no replica."""
        hosted = [shard.hosted for shard in self._shards]
        found = [replica for replica in hosted if replica is not None]
        if found:
            leaders = {self._host.leader_name(replica.shard) for replica in found}
            return leaders.pop() if len(leaders) == 1 and len(found) == len(hosted) else None
        others = (broker for broker in self._brokers if self._host.is_connected(broker))
        return None if self._me in self._brokers else next(others, None)

    async def readable_replica(self, shard: int) -> Replica | None:
        """Return the replica of a shard, if streams may be read from it."""
        hosted = self._shards[shard].hosted if shard < len(self._shards) else None
        return None if hosted is None else await hosted.readable()

    async def find_leader(self) -> BrokerName | None:
        """Return the broker that leads, also where there is no replica; None while none is known that is connected.

        All shards are to have the same leader, so one record is enough there.
        """
        if any(shard.hosted is not None for shard in self._shards):
            return self.leader()
        leader = await self._remote_leader.find()
        return leader if leader is not None and self._host.is_connected(leader) else None

    def place(self, brokers: Sequence[BrokerName]) -> None:
        """Hear which brokers are to have replicas from now on."""
        self._brokers = tuple(brokers)
        for shard in self._shards:
            shard.place_on(brokers)
        self._changed.set()

    def grow(self, shards: Sequence[str]) -> None:
        """Hear all shards of the virtual host, to which some may have been added."""
        founder = self.leader() if self._shards else None
        for number in range(len(self._shards), len(shards)):
            place = ShardPlace(self._vhost, shards[number], number, shards[0], self._folder, self._brokers, founder)
            self._shards.append(ShardReplica(self._around, place, self._changed.set))
            if self._term is not None:
                self._term.hold()
        self._host.group(shards)
        self._changed.set()

    def take(self, changes: Sequence[Change]) -> None:
        """Pass changes of the topology to the queues, if this broker leads, and to the readers of its replicas."""
        if self._term is not None:
            self._term.put(changes)
        for change in changes:
            if isinstance(change, DropQueue):
                self._end_readers(change)

    def _end_readers(self, dropped: DropQueue) -> None:
        for shard in self._shards:
            if shard.hosted is not None:
                shard.hosted.end_readers(dropped.id, f"queue '{dropped.name}' was deleted")

    async def opened(self) -> None:
        """Return when the logs are open, or cannot be opened."""
        for shard in self._shards:
            await shard.is_open.wait()

    async def run(self, metadata: Metadata, leads: Callable[[VhostName], None]) -> None:
        """Have replicas while this broker is to have some, and lead whenever it may.

        `leads` hears of each term that began or ended, and of each other broker that leads.
        """
        try:
            while True:
                self._changed.clear()
                self._run_shards()
                self._note_leader(leads)
                if await self._follow_roles(metadata, leads):
                    continue
                self._gather_soon()
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S if self._has_to_look() else None):
                        await self._changed.wait()
        finally:
            tasks = [*self._running.values(), *self._gathering]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _run_shards(self) -> None:
        for number, shard in enumerate(self._shards):
            if number not in self._running:
                self._running[number] = spawn(shard.run(), name=f"replica of shard {shard.place.shard}")

    async def begin_backup(self) -> ClosableLog:
        """Fix copies of the logs. Raises PreconditionFailedError and StorageError.

        The others have everything that the first one relies on: it says up to where all have a producer's messages.
        """
        first, *further = self._shards
        copy = await first.begin_backup()
        try:
            # After a failure the others are released with their last reference.
            copies = await asyncio.gather(*(shard.begin_backup() for shard in further))
        except BaseException:
            copy.close()
            raise
        return ShardCopies([copy, *copies]) if further else copy

    async def hand_over(self) -> None:
        """Let another broker lead, as far as that is possible at once."""
        led = self._led()
        for replica in led[:1]:
            await self._host.resign(replica)
        await asyncio.gather(*(self._host.resign(replica) for replica in led[1:]))

    async def close(self) -> None:
        """Close the logs; the caller has ended `run`."""
        self._end_term()
        for shard in self._shards:
            await shard.close()
        self._host.ungroup([shard.place.shard for shard in self._shards])

    # ------------------------------------------------------------ who leads

    def _led(self) -> list[HostedReplica]:
        """Return the replicas that lead, in the order of the shards."""
        hosted = [shard.hosted for shard in self._shards]
        return [replica for replica in hosted if replica is not None and replica.role.epoch is not None]

    def _note_leader(self, leads: Callable[[VhostName], None]) -> None:
        """Have clients that are relayed look again when another broker leads."""
        if all(shard.hosted is None for shard in self._shards):
            return
        leader = self.leader()
        if leader in (None, self._known_leader):
            return
        if self._known_leader is not None:
            leads(self._vhost)
        self._known_leader = leader
        self.owner.wake()

    def _has_to_look(self) -> bool:
        return (self._term is None or self._me not in self._brokers) and bool(self._led())

    def _gather_soon(self) -> None:
        """Hand over shards beside the look at the roles, which may begin a term meanwhile."""
        if self._led() and not self._gathering:
            task = spawn(self._gather(), name=f"gathering of vhost {self._vhost}")
            self._gathering.add(task)
            task.add_done_callback(self._gathering.discard)

    async def _gather(self) -> None:
        """Hand over what another broker is to lead: the first shard, or the others to the broker that leads it."""
        led, first = self._led(), self._shards[0].hosted
        for tries in (self._tries, self._idle_tries):
            tries.keep({replica.shard for replica in led})
        if not led:
            return
        if first is not None and first.role.epoch is not None:
            if self._is_to_hand_over(first):
                await self._resign(first)
            return
        leader = None if first is None else self._host.leader_name(first.shard)
        if first is not None and leader not in (None, self._me) and leader == self._host.leader_of_group(first.shard):
            if self._are_settled(first):
                await asyncio.gather(*(self._resign(replica, leader) for replica in led))
        elif self.fault is not None:
            await asyncio.gather(*map(self._resign, led))

    def _are_settled(self, first: HostedReplica) -> bool:
        """Return whether no shard was elected just now: others may be about to be, by the same failure."""
        now, epochs = self._clock.monotonic(), self._host.epochs_of_group(first.shard)
        if epochs != self._epochs:
            self._epochs, self._epochs_since = epochs, now
        return now >= self._epochs_since + SETTLED_S

    def _is_to_hand_over(self, first: HostedReplica) -> bool:
        """Return whether the first shard is not to stay here. A broker that is drained finds that out elsewhere."""
        if self.fault is not None:
            return True
        if self._me not in self._brokers and self._is_last_to_leave():
            return True
        if len(self._shards) == 1 or self._me in self._host.draining:
            return False
        return self._are_settled(first) and self._host.leader_of_group(first.shard) not in (None, self._me)

    def _is_last_to_leave(self) -> bool:
        """Return whether only the replicas of this broker are to go, and all others are in sync."""
        records = [self._host.known_record(shard.place.shard) for shard in self._shards]
        return all(record is not None and is_last_to_leave(record, self._brokers, self._me) for record in records)

    async def _resign(self, replica: HostedReplica, to: BrokerName | None = None) -> None:
        """Have another replica lead, if one may and none has refused just now."""
        heirs = frozenset(self._host.heirs_of(replica.shard))
        tries = self._idle_tries if self._term is None else self._tries
        if heirs and tries.is_due(replica.shard, heirs, self._clock.monotonic()):
            outcome = await self._host.resign(replica, to)
            if outcome in (HandOver.NO_HEIR, HandOver.NOT_TAKEN):
                again_after_s = tries.fail(replica.shard, heirs, self._clock.monotonic())
                _log.info(
                    "not handed over", vhost=self._vhost, to=to, outcome=outcome.value, again_after_s=again_after_s
                )

    # ------------------------------------------------------------ the term

    async def _follow_roles(self, metadata: Metadata, leads: Callable[[VhostName], None]) -> bool:
        """End the term and begin the next one by the roles; return whether to look at them again at once."""
        hosted = [shard.hosted for shard in self._shards]
        roles = [ReplicaRole() if replica is None else replica.role for replica in hosted]
        term, epochs = self._term, tuple(role.epoch for role in roles)
        if term is not None and term.epochs != epochs[: len(term.epochs)]:
            self._end_term()
            leads(self._vhost)
        if self._term is not None:
            self.owner.set_delivers(delivers=all(role.delivers for role in roles[: len(self._term.epochs)]))
        if self.fault is not None or not all(role.appends for role in roles):
            return False
        replicas = [replica for replica in hosted if replica is not None]
        led = tuple(epoch for epoch in epochs if epoch is not None)
        if self._term is not None:
            return self._term.is_held and await self._join(self._term, replicas, led)
        if await self._begin_term(replicas, metadata, led):
            leads(self._vhost)
        else:
            await asyncio.sleep(RETRY_S)
        return True

    async def _join(self, term: Term, replicas: Sequence[HostedReplica], epochs: tuple[int, ...]) -> bool:
        """Add shards that the virtual host has got to its term, and return True to have a look at the roles again."""
        try:
            for number in range(len(term.epochs), len(replicas)):
                if not await replicas[number].lead_further(self._engine, term.shard, number, epochs[number]):
                    break
                term.epochs = epochs[: number + 1]
            if len(term.epochs) == len(self._shards):
                await asyncio.to_thread(term.shard.count_shards, len(term.epochs))
                term.release()
                _log.info("shards added", vhost=self._vhost, epochs=term.epochs)
                return True
        except (FaultError, NotLedError) as fault:
            _log.warning("shards not added", vhost=self._vhost, reason=str(fault))
        await asyncio.sleep(RETRY_S)
        return True

    async def _begin_term(self, replicas: Sequence[HostedReplica], metadata: Metadata, epochs: tuple[int, ...]) -> bool:
        """Open the queues; return whether they are, as the term may be over already."""
        try:
            await metadata.latest()
            shard = await self._open_queues(replicas, epochs)
        except FaultError as fault:
            _log.warning("queues not opened", vhost=self._vhost, epochs=epochs, reason=str(fault))
            return False
        if shard is None:
            return False
        if len(replicas) < len(self._shards):  # it has got some meanwhile
            await asyncio.to_thread(shard.end_term)
            return False
        term = self._term = Term(self._vhost, shard, epochs)
        try:
            await term.fill(self.owner.topology)
        except NotLedError:  # the term is over
            self._end_term()
            return False
        except FaultError as fault:
            # The log is with queues that lack a part of the topology: only another process goes on.
            self._fault = str(fault)
            _log.error("queues not filled", vhost=self._vhost, epochs=epochs, reason=self._fault)
            return True
        self._applying = spawn(
            term.run(), name=f"term of vhost {self._vhost}", on_bug=partial(self._lacks_change, term)
        )
        self.owner.begin_term(term, delivers=all(replica.role.delivers for replica in replicas))
        _log.info("queues opened", vhost=self._vhost, epochs=epochs)
        return True

    async def _open_queues(self, replicas: Sequence[HostedReplica], epochs: tuple[int, ...]) -> Shard | None:
        """Open the queues; None where the term of a shard is over, or may not begin yet. Raises FaultError."""
        (first, *further), (epoch, *others) = replicas, epochs
        vhost = await first.lead(self._engine, self._vhost, epoch)
        if vhost is None or not further:
            return vhost
        numbered = enumerate(zip(further, others, strict=True), 1)
        opening = [each.lead_further(self._engine, vhost, number, its) for number, (each, its) in numbered]
        try:
            if all(await asyncio.gather(*opening)):
                await asyncio.to_thread(vhost.count_shards, len(replicas))
                return vhost
        except FaultError:
            await asyncio.to_thread(vhost.end_term)
            raise
        await asyncio.to_thread(vhost.end_term)
        return None

    def _lacks_change(self, term: Term, error: Exception) -> None:
        """Have another broker lead: clients have answers for changes that these queues do not have."""
        if self._term is term:
            self._fault = str(error)
            self._applying = None
            self._end_term()
            self._changed.set()

    def _end_term(self) -> None:
        self._term = None
        self.owner.end_term()
        if self._applying is not None:
            self._applying.cancel()
            self._applying = None
