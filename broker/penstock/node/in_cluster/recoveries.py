"""Recovers a shard for an operator when no replica that is in sync is left: see `cluster.recovering`.

All brokers of the shard are asked what they have. The change of the record at the coordinator is the whole recovery:
whichever process dies on the way, the record says whether it was made, and asking again does no harm.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from penstock.cluster.calls import NotCarriedOutError
from penstock.cluster.coordinator import Refused, Versioned
from penstock.cluster.host import ClusterHost
from penstock.cluster.meta.member import MetaMember
from penstock.cluster.record import BrokerName, ShardRecord
from penstock.cluster.recovering import EPOCH_BITS, Choice, Problem, Seen, is_recovered, most, problem_of, recovered
from penstock.cluster.shard_calls import (
    STANDING,
    ReplicaReport,
    StandingAnswer,
    StandingQuestion,
)
from penstock.kit.clock import Clock
from penstock.kit.logging import logger
from penstock.model.errors import BusyError, NotFoundError, PreconditionFailedError, StorageError, Thing
from penstock.model.names import VhostName
from penstock.native import read_replica
from penstock.node.in_cluster.cluster_view import ClusterView
from penstock.services.ports import RecoveredShard, RemainingReplica
from penstock.storage.cluster_json import shard_number
from penstock.storage.vhost_files import shard_directory

LEAD_S: Final = 20.0
"""The chosen replica is waited for so long."""
LOOK_S: Final = 0.2
_log = logger("cluster")


@dataclass(frozen=True, slots=True)
class Subject:
    """A shard to recover: its name, what it is in errors, its virtual host, and the brokers that may have a replica."""

    shard: str
    thing: Thing
    vhost: VhostName
    placed: Sequence[BrokerName]


class Recoveries:
    """Recovers shards of virtual hosts, each by itself."""

    def __init__(self, view: ClusterView, clock: Clock) -> None:
        self._view = view
        self._recovery = ShardRecovery(view.host, view.member, view.is_alive, self._folder, clock)
        view.member.answer(STANDING.method, STANDING.handler(self._recovery.answer_standing))

    async def recover(
        self, vhost: VhostName, number: int, broker: BrokerName, by: str, *, accepts_loss: bool
    ) -> RecoveredShard:
        """Do as `ShardRecovery.recover` with a shard of a virtual host. Raises NotFoundError, too."""
        state = self._view.metadata.state
        if vhost not in state.vhosts:
            raise NotFoundError(Thing("vhost", vhost), "check the name")
        if broker not in state.brokers:
            raise NotFoundError(Thing("broker", broker), "list the brokers with `penstock cluster status`")
        shards = state.shards_of(vhost)
        if number >= len(shards):
            raise NotFoundError(Thing("shard", str(number)), f"name one of the {len(shards)} shards, the first is 0")
        shard = shards[number]
        subject = Subject(shard, Thing("vhost", vhost), vhost, state.placement.get(shard, ()))
        found = await self._recovery.recover(subject, broker, by, accepts_loss=accepts_loss)
        return replace(found, shard_count=len(shards))

    def _folder(self, shard: str, vhost: str) -> Path:
        return shard_directory(self._view.directory_of(VhostName(vhost)), shard_number(shard))


class ShardRecovery:
    """`is_alive` returns whether the session of a broker goes on, and `folder` where the log of a shard is here."""

    def __init__(
        self,
        host: ClusterHost,
        member: MetaMember,
        is_alive: Callable[[BrokerName], bool],
        folder: Callable[[str, str], Path],
        clock: Clock,
    ) -> None:
        self._host = host
        self._member = member
        self._is_alive = is_alive
        self._folder = folder
        self._clock = clock

    async def recover(self, subject: Subject, broker: BrokerName, by: str, *, accepts_loss: bool) -> RecoveredShard:
        """Say what a recovery from the replica of a broker costs, and carry it out if the loss is accepted.

        Raises PreconditionFailedError for a shard that is not to be recovered if the loss is accepted, BusyError when
        the record was changed meanwhile, and StorageError without the coordinator.
        """
        shard = subject.shard
        found = await self._host.read_versioned(shard)
        record = None if found is None else found.record
        seen = await self._look(subject, record)
        chosen = next((each.report for each in seen if each.broker == broker and each.report is not None), None)
        if chosen is not None and is_recovered(record, chosen.replica):
            assert record is not None
            return self._result(shard, record, seen, None, await self._until_led(subject, record))
        problem = problem_of(record, seen, broker)
        if not accepts_loss:
            return self._result(shard, record, seen, problem, 0)
        if problem is not None:
            raise PreconditionFailedError(subject.thing, problem.rule, problem.way_out)
        choice = Choice(broker, by, self._clock.now_ms(), secrets.randbits(EPOCH_BITS))
        after = await self._replace(subject, found, seen, choice)
        return self._result(shard, after, seen, None, await self._until_led(subject, after), is_new=True)

    # ------------------------------------------------------------ parts

    async def _look(self, subject: Subject, record: ShardRecord | None) -> list[Seen]:
        """Ask all brokers that may have a replica."""
        brokers = {*subject.placed, *map(BrokerName, () if record is None else record.replicas.values())}
        question = StandingQuestion(subject.shard, subject.vhost)
        return list(await asyncio.gather(*(self._ask(broker, question) for broker in sorted(brokers))))

    async def _ask(self, broker: BrokerName, question: StandingQuestion) -> Seen:
        is_alive = self._is_alive(broker)
        if broker == self._host.me.name:
            return Seen(broker, True, True, await self._own(question))
        answer = await STANDING.ask(self._member, broker, question)
        return Seen(broker, is_alive, False) if answer is None else Seen(broker, is_alive, True, answer.report)

    async def answer_standing(self, asked: StandingQuestion) -> StandingAnswer:
        """Answer the question of another broker. Raises NotCarriedOutError."""
        try:
            return StandingAnswer(await self._own(asked))
        except StorageError as error:
            raise NotCarriedOutError(str(error)) from error

    async def _own(self, question: StandingQuestion) -> ReplicaReport | None:
        """Return what this broker has. A log that is not open, or not yet, is known by its file alone."""
        replica = self._host.hosted(question.shard)
        if replica is not None:
            standing = await replica.standing()
            role = standing.role
            return ReplicaReport(
                replica.replica,
                is_open=True,
                promised=standing.promised,
                log_epoch=standing.log_epoch,
                end=standing.end,
                committed=standing.committed,
                leads=role.epoch,
                halt=role.halt,
            )
        directory = self._folder(question.shard, question.vhost)
        identity = await asyncio.to_thread(read_replica, str(directory))
        return None if identity is None else ReplicaReport(identity.replica, False, identity.promised)

    async def _replace(
        self, subject: Subject, found: Versioned | None, seen: Sequence[Seen], choice: Choice
    ) -> ShardRecord:
        """Store the record after the recovery, and return it. Raises BusyError and StorageError."""
        record = None if found is None else found.record
        wanted = recovered(record, seen, subject.placed, choice, lambda: secrets.token_hex(16))
        base = None if found is None else found.version
        outcome = await self._host.replace_record(subject.shard, base, wanted)
        if outcome is Refused.CONFLICT:
            rule = "was not recovered: its record was changed meanwhile; look at it again before you repeat the command"
            raise BusyError(subject.thing, rule)
        if outcome is Refused.UNKNOWN:
            raise BusyError(subject.thing, "may be recovered: the coordinator did not answer; ask again")
        _log.error(
            "shard recovered by an operator: confirmed messages may be lost",
            shard=subject.shard,
            vhost=subject.vhost,
            broker=choice.broker,
            by=choice.by,
            epoch=wanted.epoch,
            end=wanted.recoveries[-1].end,
        )
        return wanted

    async def _until_led(self, subject: Subject, record: ShardRecord) -> int:
        """Return the epoch that the chosen replica leads, or one that caught up with it; 0 if none does in time."""
        question = StandingQuestion(subject.shard, subject.vhost)
        brokers = sorted({BrokerName(broker) for broker in record.replicas.values()})
        try:
            async with asyncio.timeout(LEAD_S):
                while True:
                    seen = await asyncio.gather(*(self._ask(broker, question) for broker in brokers))
                    epoch = max((each.report.leads or 0) if each.report is not None else 0 for each in seen)
                    if epoch > record.epoch:
                        return epoch
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            return 0

    def _result(
        self,
        shard: str,
        record: ShardRecord | None,
        seen: Iterable[Seen],
        problem: Problem | None,
        epoch: int,
        *,
        is_new: bool = False,
    ) -> RecoveredShard:
        every = list(seen)
        in_sync = () if record is None else record.in_sync
        replicas = [_remaining(each, in_sync) for each in every]
        why = "" if problem is None else f"{problem.rule}; {problem.way_out}"
        return RecoveredShard(shard, replicas, most(every) or "", why, is_new, epoch)


def _remaining(seen: Seen, in_sync: Sequence[str]) -> RemainingReplica:
    report = seen.report
    if report is None:
        return RemainingReplica(seen.broker, has_answered=seen.has_answered, is_alive=seen.is_alive)
    return RemainingReplica(
        seen.broker,
        has_answered=True,
        is_alive=True,
        id=report.replica,
        is_open=report.is_open,
        is_in_sync=report.replica in in_sync,
        epoch=report.log_epoch,
        end_bytes=report.end,
        committed_bytes=report.committed,
        halted=report.halt or "",
    )
