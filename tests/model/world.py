"""A random model of how one shard is replicated: who leads, what is committed, and what a replica may throw away.

There are a few replicas, one record of who leads that is changed by compare-and-set, a network that loses, repeats
and reorders messages, processes that crash and lose what they had not synced, and disks that are lost. Any replica
campaigns at any time. Nothing has a clock, since safety may not depend on one.

Checked throughout: what is committed at a position never changes, every leader has all of it, no replica cuts off what
it knows to be committed, a disk that may be lost is never the last one, and no destructive entry takes effect that is
not committed later. Each rule of the protocol can be taken out, and a check has to fail then.

The log is abstract: an entry is its epoch and a number. Copies of files, forwarding and deliveries are not modelled.
"""

import random
from typing import Final

from model.replica import (
    Acknowledgement,
    Append,
    Change,
    Entry,
    Pending,
    Position,
    Record,
    Replica,
    ReplicaId,
    Rule,
    Violation,
)

FIRST_ID: Final = 100
RATES: Final = (0.05, 0.2, 0.5, 1.0)
"""A run draws from these how often processes crash, so that some runs are calm."""


class World:
    """One run from a seed. `step` does one thing at random and checks the promises."""

    def __init__(
        self,
        seed: int,
        *,
        without: Rule | None = None,
        node_count: int = 3,
        min_in_sync: int = 2,
        forfeits: bool = False,
        moves: bool = False,
    ) -> None:
        """`forfeits`: entries are acknowledged before they are synced, and a crash gives up the replica's seat.

        `moves`: the disks of replicas that are not in sync are deleted, as those of brokers that they have left.
        """
        self._random = random.Random(seed)
        self._without = without
        self._min = min_in_sync
        self._forfeits = forfeits
        self._moves = moves
        self._deleted: set[ReplicaId] = set()
        self._acknowledges_early = forfeits or without is Rule.ACKNOWLEDGE_SYNCED
        self.replicas = [Replica(node, FIRST_ID + node) for node in range(node_count)]
        self._next_id = FIRST_ID + node_count
        self._number = 0
        self._disks = {replica.id for replica in self.replicas}
        self.record = Record(1, (0, 1), frozenset(self._disks), 1)
        self.committed: dict[Position, Entry] = {}
        self._network: list[Append | Acknowledgement] = []
        self._changes: list[Change] = []
        self._crash_rate = self._random.choice(RATES)
        self._campaign_rate = self._random.choice((0.05, 0.3, 1.0))
        self._lead(self.replicas[0])
        self.replicas[0].start = 1

    def step(self) -> None:
        replica = self._random.choice(self.replicas)
        if self._moves and self._random.random() < 0.05:
            self._leave(replica)
            return
        drawn = self._random.random()
        for share, act in (
            (0.10, self._publish),
            (0.22, self._sync),
            (0.42, self._send),
            (0.66, self._receive),
            (0.76, self._acknowledge),
            (0.83, self._propose),
            (0.87, self._campaign),
            (0.93, self._coordinate),
            (0.96, self._read),
            (0.985, self._crash),
            (1.0, self._lose_disk),
        ):
            if drawn < share:
                act(replica)
                return

    # What a replica does.

    def _publish(self, replica: Replica) -> None:
        if replica.is_leader:
            self._append(replica, destroys=self._random.random() < 0.2)

    def _sync(self, replica: Replica) -> None:
        replica.synced = len(replica.log)

    def _send(self, replica: Replica) -> None:
        follower = self._random.choice(self.replicas)
        if not replica.is_leader or follower is replica:
            return
        log = replica.log
        after = min(replica.acknowledged.get(follower.id, 0), len(log))
        if self._random.random() < 0.3:
            after = self._random.randrange(len(log) + 1)
        entries = tuple(log[after : after + 1 + self._random.randrange(4)])
        before = log[after - 1].epoch if after else 0
        self._network.append(Append(follower.node, replica.epoch, after, before, entries, replica.high_watermark))

    def _receive(self, _: Replica) -> None:
        if not self._network:
            return
        place = self._random.randrange(len(self._network))
        message = self._network[place]
        if self._random.random() < 0.85:  # else it comes again
            self._network[place] = self._network[-1]
            self._network.pop()
        replica = self.replicas[message.to]
        if isinstance(message, Append):
            self._take(replica, message)
        elif replica.is_leader and replica.epoch == message.epoch:
            known = replica.acknowledged.get(message.replica, 0)
            replica.acknowledged[message.replica] = max(known, message.position)
            self._advance(replica)

    def _take(self, replica: Replica, message: Append) -> None:
        if message.epoch < replica.promised and self._without is not Rule.PROMISE:
            return
        if message.epoch == replica.epoch and replica.is_leader:
            return
        replica.promised = message.epoch
        cuts_to_watermark = self._without is Rule.CUT_BY_EPOCH
        if replica.is_leader or message.epoch != replica.epoch:
            replica.follow()
            replica.epoch = message.epoch
            if cuts_to_watermark:
                replica.cut(replica.known_committed)
        if cuts_to_watermark or replica.continues(message):
            self._add(replica, message)

    def _add(self, replica: Replica, message: Append) -> None:
        if message.after > len(replica.log):
            return
        for position, entry in enumerate(message.entries, message.after):
            if position < len(replica.log) and replica.log[position].epoch == entry.epoch:
                continue
            if position < len(replica.log):
                if position < replica.known_committed and self._without is not Rule.CUT_BY_EPOCH:
                    raise Violation(f"node {replica.node} has to cut what it knows to be committed at {position}")
                replica.cut(position)
            replica.log.append(entry)
        replica.verified = max(replica.verified, message.after + len(message.entries))
        replica.known_committed = max(replica.known_committed, min(message.high_watermark, replica.verified))
        self._execute(replica)

    def _acknowledge(self, replica: Replica) -> None:
        if replica.is_leader or not replica.verified:
            return
        position = min(len(replica.log) if self._acknowledges_early else replica.synced, replica.verified)
        if self._without is Rule.ACKNOWLEDGE_VERIFIED:
            position = replica.synced
        for other in self.replicas:
            if other is not replica:
                self._network.append(Acknowledgement(other.node, replica.epoch, replica.id, position))

    def _propose(self, replica: Replica) -> None:
        # A leader asks for a smaller or a larger in-sync set.
        if not replica.is_leader or replica.pending is not None:
            return
        if self._random.random() < 0.5:
            kept = self._some_of(replica.in_sync, replica.id)
            if kept == replica.in_sync or (len(kept) < self._min and self._without is not Rule.FLOOR):
                return
            replica.pending = Pending(False, kept, replica.version)
        else:
            floor = 0 if self._without is Rule.EPOCH_START else replica.start
            ready = [
                id
                for id, position in replica.acknowledged.items()
                if id not in replica.in_sync and position >= max(replica.high_watermark, floor)
            ]
            if not ready:
                return
            replica.pending = Pending(True, replica.in_sync | {self._random.choice(ready)}, replica.version)
        wanted = replica.pending.in_sync
        self._changes.append(Change(replica.node, replica.boot, replica.epoch, replica.version, wanted, False))
        self._advance(replica)

    def _campaign(self, replica: Replica) -> None:
        # A member of the in-sync set wants to lead; it may be wrong about the leader.
        record = self.record
        if replica.is_leader or replica.id not in record.in_sync or self._random.random() >= self._campaign_rate:
            return
        kept = record.in_sync if self._random.random() < 0.5 else self._some_of(record.in_sync, replica.id)
        if len(kept) < self._min:
            kept = record.in_sync
        self._changes.append(Change(replica.node, replica.boot, record.epoch, record.version, kept, True))

    def _coordinate(self, _: Replica) -> None:
        # The coordinator takes one request, perhaps late; its answer may be lost.
        if not self._changes:
            return
        change = self._changes.pop(self._random.randrange(len(self._changes)))
        record = self.record
        is_made = record.version == change.version
        if self._without is Rule.SET_BY_VERSION:
            is_made = record.epoch == change.epoch
        if is_made:
            epoch, leader = record.epoch, record.leader
            if change.is_election:
                epoch, leader = change.epoch + 1, (change.node, change.boot)
            self.record = Record(epoch, leader, change.in_sync, record.version + 1)
            self._check_disks()
            if self.record.in_sync & self._deleted:
                raise Violation("a disk that was deleted on purpose is in the in-sync set")
        replica = self.replicas[change.node]
        if self._random.random() < 0.7 and replica.boot == change.boot:
            self._answered(replica, change, is_made)

    def _answered(self, replica: Replica, change: Change, is_made: bool) -> None:
        record = self.record
        if change.is_election:
            if is_made and not replica.is_leader and record.epoch > replica.promised:
                self._begin(replica)
        elif replica.is_leader and replica.epoch == change.epoch:
            if is_made:
                self._know(replica, change.in_sync, record.version)
                self._advance(replica)
            elif record.epoch != change.epoch:
                replica.follow()
            else:
                self._know(replica, record.in_sync, record.version)

    def _read(self, replica: Replica) -> None:
        record = self.record
        if replica.is_leader:
            if record.epoch != replica.epoch:
                replica.follow()
            elif replica.pending is not None and (
                record.version > replica.pending.version or self._without is Rule.UNKNOWN_STAYS_PENDING
            ):
                self._know(replica, record.in_sync, record.version)
                self._advance(replica)
        elif record.leader == (replica.node, replica.boot) and record.epoch > replica.promised:
            self._begin(replica)
        elif (
            self._without is Rule.BOOT_IS_AN_EPOCH
            and record.leader[0] == replica.node
            and record.epoch == replica.promised
        ):
            self._lead(replica)
            replica.start = len(replica.log)

    def _know(self, leader: Replica, in_sync: frozenset[ReplicaId], version: int) -> None:
        # A leader forgets what replicas acknowledged that leave, as they may be deleted.
        for id in leader.in_sync - in_sync if self._moves else ():
            leader.acknowledged.pop(id, None)
        leader.in_sync, leader.version, leader.pending = in_sync, version, None

    def _leave(self, replica: Replica) -> None:
        # A replica that is not in sync is deleted, as one that has left: its node begins anew. It is closed before, and
        # asks the leader after all that it has acknowledged.
        if replica.id in self.record.in_sync:
            return
        if self._without is not Rule.LEAVES_UNCOUNTED:
            epoch = self.record.epoch
            leader = next((each for each in self.replicas if each.is_leader and each.epoch == epoch), None)
            on_their_way = (each for each in self._network if isinstance(each, Acknowledgement))
            is_counted = any(each.replica == replica.id and each.epoch == epoch for each in on_their_way)
            if leader is None or replica.id in leader.acknowledged or is_counted:
                return
        self._deleted.add(replica.id)
        self._replace_disk(replica)

    # Faults.

    def _crash(self, replica: Replica) -> None:
        # The process dies and starts again; what was not synced may be lost.
        if self._random.random() >= self._crash_rate:
            return
        if self._forfeits and not self._give_seat_up(replica):
            return
        lost_from = replica.synced + self._random.randrange(len(replica.log) - replica.synced + 1)
        del replica.log[lost_from:]
        replica.synced = len(replica.log)
        replica.follow()
        replica.boot += 1
        # It is stored now and then, and never ahead of the synced log.
        replica.known_committed = min(replica.known_committed, replica.synced)
        replica.high_watermark = 0

    def _lose_disk(self, replica: Replica) -> None:
        # The disk is lost, if the others have to be enough, and a blank one takes its place.
        if self._random.random() >= 0.5 * self._crash_rate or not self._may_lose(replica.id):
            return
        self._replace_disk(replica)

    def _replace_disk(self, replica: Replica) -> None:
        self._disks.discard(replica.id)
        if self._without is not Rule.SEAT_IS_THE_DISK:
            replica.id, self._next_id = self._next_id, self._next_id + 1
        self._disks.add(replica.id)
        blank = Replica(replica.node, replica.id, [], 0, 0, 0, replica.boot + 1, verified=0)
        self.replicas[replica.node] = blank
        self._check_disks()

    def _give_seat_up(self, replica: Replica) -> bool:
        if not self._may_lose(replica.id):
            return False
        self._disks.discard(replica.id)
        replica.id, self._next_id = self._next_id, self._next_id + 1
        self._disks.add(replica.id)
        return True

    def _may_lose(self, id: ReplicaId) -> bool:
        # Fewer than the minimum are lost then, or every set that counts, or was asked for, keeps a disk.
        sets = [self.record.in_sync, *(change.in_sync for change in self._changes)]
        lost = {seat for seats in sets for seat in seats - self._disks}
        if any(id in seats for seats in sets):
            lost.add(id)
        return len(lost) < self._min or all((seats & self._disks) - {id} for seats in sets)

    # What they share.

    def _some_of(self, ids: frozenset[ReplicaId], kept: ReplicaId) -> frozenset[ReplicaId]:
        return frozenset(id for id in sorted(ids) if id == kept or self._random.random() < 0.5)

    def _append(self, replica: Replica, *, destroys: bool = False) -> None:
        self._number += 1
        replica.log.append(Entry(replica.epoch, self._number, destroys))
        self._execute(replica)

    def _lead(self, replica: Replica) -> None:
        record = self.record
        replica.is_leader, replica.epoch, replica.promised = True, record.epoch, max(replica.promised, record.epoch)
        replica.in_sync, replica.version, replica.pending = record.in_sync, record.version, None
        replica.acknowledged, replica.high_watermark = {}, 0

    def _begin(self, replica: Replica) -> None:
        # An elected replica begins its epoch.
        for position, entry in self.committed.items():
            if len(replica.log) < position or replica.log[position - 1] != entry:
                raise Violation(f"the leader of epoch {self.record.epoch} lacks what is committed at {position}")
        self._lead(replica)
        self._append(replica)
        replica.start = len(replica.log)

    def _counted(self, replica: Replica) -> frozenset[ReplicaId]:
        # The replicas that must have an entry before it is committed.
        pending = replica.pending
        if pending is None:
            return replica.in_sync
        if pending.is_expand and self._without is not Rule.EXPAND_COUNTS_WHEN_PROPOSED:
            return replica.in_sync | pending.in_sync
        if not pending.is_expand and self._without is Rule.SHRINK_COUNTS_WHEN_DECIDED:
            return pending.in_sync
        return replica.in_sync

    def _advance(self, replica: Replica) -> None:
        if len(replica.in_sync) < self._min:
            return
        own = len(replica.log) if self._acknowledges_early else replica.synced
        reached = min(
            own if id == replica.id else replica.acknowledged.get(id, 0) for id in self._counted(replica) | {replica.id}
        )
        if reached <= replica.high_watermark or (reached < replica.start and self._without is not Rule.EPOCH_START):
            return
        for position in range(1, reached + 1):
            self._commit(position, replica.log[position - 1])
        replica.high_watermark = reached
        replica.known_committed = max(replica.known_committed, reached)
        self._execute(replica)

    def _commit(self, position: Position, entry: Entry) -> None:
        first = self.committed.setdefault(position, entry)
        if first != entry:
            raise Violation(f"position {position} was committed as {first} and as {entry}")
        for replica in self.replicas:
            if replica.executed.get(position, entry) != entry:
                raise Violation(f"node {replica.node} destroyed by an entry at {position} that was never committed")

    def _execute(self, replica: Replica) -> None:
        # Destructive entries take effect: what they remove cannot be had back by cutting the log.
        until = len(replica.log) if self._without is Rule.DESTRUCTION_WAITS else replica.known_committed
        for position in range(max(replica.executed, default=0) + 1, until + 1):
            entry = replica.log[position - 1]
            if entry.destroys:
                replica.executed[position] = entry

    def _check_disks(self) -> None:
        if not self.record.in_sync & self._disks:
            raise Violation("no disk of the in-sync set is left, though no more were lost than the minimum allows")


def run(
    seed: int,
    steps: int,
    *,
    without: Rule | None = None,
    node_count: int = 3,
    min_in_sync: int = 2,
    forfeits: bool = False,
    moves: bool = False,
) -> World:
    """Run one seed to its end.

    Raises:
        Violation: a promise was broken.
    """
    world = World(seed, without=without, node_count=node_count, min_in_sync=min_in_sync, forfeits=forfeits, moves=moves)
    for _ in range(steps):
        world.step()
    return world
