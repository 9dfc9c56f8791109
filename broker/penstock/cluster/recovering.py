"""The recovery of a shard by an operator, when no replica in sync is left: what is refused, and the record after it.

It breaks one rule knowingly: the chosen replica was not in the in-sync set, so it may lack records that are committed.
All other rules hold: the record changes by its version, its epoch is above every promise that is known, and the chosen
replica is elected by the record like any other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from penstock.cluster.record import RECOVERIES_MAX, BrokerName, Leader, Recovery, ReplicaId, ShardRecord
from penstock.cluster.shard_calls import ReplicaReport

COORDINATOR_WENT_BACK: Final = "coordinator"
COMMITTED_WOULD_BE_CUT: Final = "committed"
DISK_FAILED: Final = "disk"
EPOCH_BITS: Final = 20
"""An epoch by a recovery is above those before by at least 2 to the power of this, as no count of elections is."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A broker that may have a replica, as the one that was asked sees it; `report` is None where it has none."""

    broker: BrokerName
    is_alive: bool
    has_answered: bool
    report: ReplicaReport | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a shard cannot be recovered, and what to do."""

    rule: str
    way_out: str


@dataclass(frozen=True, slots=True)
class Choice:
    """The replica that an operator chose, and what is kept of that. `jump` is drawn, and has EPOCH_BITS bits."""

    broker: BrokerName
    by: str
    at_ms: int
    jump: int


class AfterHalt(Enum):
    """The step of a halted replica once its shard was recovered."""

    OPEN_AGAIN = "the coordinator's record counts again"
    BEGIN_ANEW = "its log has what the shard does not have any more, so it is set aside"


def most(seen: Sequence[Seen]) -> BrokerName | None:
    """Return the broker whose replica has most: the newest epoch counts first, as in elections without a record."""
    open_ones = [each for each in seen if each.report is not None and each.report.is_open]
    best = max(open_ones, key=lambda each: _has(each.report), default=None)
    return None if best is None else best.broker


def problem_of(record: ShardRecord | None, seen: Sequence[Seen], chosen: BrokerName) -> Problem | None:
    """Return why a shard must not be recovered from the replica of a broker; None where it may be."""
    for each in seen:
        if each.report is not None and each.report.leads is not None:
            rule = f"is led by broker '{each.broker}'"
            return Problem(rule, "recovery is for shards that no broker can lead")
    report = next((each.report for each in seen if each.broker == chosen), None)
    if report is None or not report.is_open:
        able = [each.broker for each in seen if each.report is not None and each.report.is_open]
        way_out = f"choose one of {', '.join(able)}" if able else "start a broker that has one"
        return Problem(f"has no open replica at broker '{chosen}' that answers", way_out)
    if report.halt not in {None, COORDINATOR_WENT_BACK, COMMITTED_WOULD_BE_CUT}:
        rule = f"has a replica at broker '{chosen}' whose disk failed"
        return Problem(rule, "repair the disk and start that broker, or choose another")
    best = next(each for each in seen if each.broker == most(seen))
    if _has(best.report) > _has(report):
        way_out = f"choose '{best.broker}', or stop that broker if its log is not to be used"
        return Problem(f"has more at broker '{best.broker}' than at broker '{chosen}'", way_out)
    if record is None and not report.promised:
        return Problem("is new", "wait until a broker makes its record")
    if record is None or any(each.report is not None and each.report.promised > record.epoch for each in seen):
        # The newest record may be lost, so each broker may have more.
        problem = next((found for found in map(_problem_of_any, seen) if found is not None), None)
        if problem is not None or record is None:
            return problem
    holders = {each.broker: each for each in seen}
    members = ((replica, holders.get(BrokerName(record.replicas[replica]))) for replica in record.in_sync)
    problems = (_problem_of_member(replica, holder) for replica, holder in members if holder is not None)
    return next((problem for problem in problems if problem is not None), None)


def recovered(
    record: ShardRecord | None,
    seen: Sequence[Seen],
    placed: Sequence[BrokerName],
    choice: Choice,
    draw: Callable[[], ReplicaId],
) -> ShardRecord:
    """Return the record with the chosen replica alone in sync. It leads once it has found that and is elected.

    Brokers of the shard that do not answer keep their places, and one that has another disk is known by that.
    """
    reports = {each.broker: each.report for each in seen if each.report is not None}
    chosen = reports[choice.broker]
    known = {} if record is None else record.replicas
    before = set() if record is None else set(record.in_sync)
    replicas = {each: name for each, name in known.items() if name not in reports}
    replicas |= {report.replica: broker for broker, report in reports.items()}
    replicas |= {draw(): broker for broker in placed if broker not in set(replicas.values())}
    epochs = [0 if record is None else record.epoch, *(report.promised for report in reports.values())]
    epochs += [report.log_epoch for report in reports.values()]
    epoch = (max(epochs) >> EPOCH_BITS) + 1 + choice.jump << EPOCH_BITS
    recovery = Recovery(
        epoch=epoch,
        broker=choice.broker,
        replica=chosen.replica,
        end=chosen.end,
        by=choice.by[:255],
        at_ms=choice.at_ms,
        lost=tuple(sorted(before - {chosen.replica})),
    )
    earlier = () if record is None else record.recoveries
    return ShardRecord(
        epoch=epoch,
        leader=Leader(broker=choice.broker, replica=chosen.replica, boot=0),
        in_sync=(chosen.replica,),
        replicas=replicas,
        min_in_sync=1,
        recoveries=(*earlier, recovery)[-RECOVERIES_MAX:],
    )


def is_recovered(record: ShardRecord | None, replica: ReplicaId) -> bool:
    """Return whether a shard was recovered from a replica, and no other one is in sync since."""
    if record is None or not record.recoveries:
        return False
    return record.recoveries[-1].replica == replica and record.in_sync == (replica,)


def recovered_in(record: ShardRecord | None) -> int:
    """Return the epoch of the newest recovery of a shard; 0 without any.

    It is above all epochs before, and so are all multiples of a power of 2 that follow from it.
    """
    return record.recoveries[-1].epoch if record is not None and record.recoveries else 0


def lost_by(record: ShardRecord, replica: ReplicaId, promised: int) -> Recovery | None:
    """Return the recovery that counted a replica as lost, which has heard of no leader since then."""
    return next((each for each in record.recoveries if replica in each.lost and promised < each.epoch), None)


def after_halt(record: ShardRecord | None, halt: str | None, promised: int, log_epoch: int) -> AfterHalt | None:
    """Return what a replica does that has halted; None: it waits for an operator."""
    recoveries = () if record is None else record.recoveries
    if halt == COORDINATOR_WENT_BACK and any(each.epoch > promised for each in recoveries):
        return AfterHalt.OPEN_AGAIN
    if halt == COMMITTED_WOULD_BE_CUT and any(each.epoch > log_epoch for each in recoveries):
        return AfterHalt.BEGIN_ANEW
    return None


def _problem_of_any(holder: Seen) -> Problem | None:
    """Return why it is not known yet what a broker has."""
    if not holder.has_answered and holder.is_alive:
        rule = f"may have more at broker '{holder.broker}', which is alive and does not answer"
        return Problem(rule, "wait for it, or stop that broker for good")
    if holder.report is not None and not holder.report.is_open:
        rule = f"may have more at broker '{holder.broker}', where its log is not open"
        return Problem(rule, "wait until it is; if that broker's log says that it cannot be, move its folder away")
    return None


def _problem_of_member(replica: ReplicaId, holder: Seen) -> Problem | None:
    """Return why a replica in sync is not lost."""
    rule, report = f"has a replica in sync at broker '{holder.broker}', which", holder.report
    if not holder.has_answered:
        if not holder.is_alive:
            return None
        return Problem(f"{rule} is alive and does not answer", "wait for it, or stop that broker for good")
    if report is None or report.replica != replica:
        return None  # it has another disk
    if not report.is_open:
        way_out = "wait until it is; if that broker's log says that it cannot be, move its folder away"
        return Problem(f"{rule} is not open", way_out)
    if report.halt in {COORDINATOR_WENT_BACK, COMMITTED_WOULD_BE_CUT}:
        return None  # it does not lead by this record
    if report.halt is not None:
        return Problem(f"{rule} has halted because its disk failed", "repair it, or stop that broker for good")
    return Problem(f"{rule} answers", "wait until it leads, for which a majority of the brokers has to be there")


def _has(report: ReplicaReport | None) -> tuple[int, int]:
    return (0, 0) if report is None else (report.log_epoch, report.end)
