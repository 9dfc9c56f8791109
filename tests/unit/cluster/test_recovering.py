"""The recovery of a shard without a replica in sync: what is refused, and the record after it."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest

from penstock.cluster.record import RECOVERIES_MAX, BrokerName, Leader, Recovery, ShardRecord
from penstock.cluster.recovering import (
    EPOCH_BITS,
    AfterHalt,
    Choice,
    Seen,
    after_halt,
    is_recovered,
    lost_by,
    most,
    problem_of,
    recovered,
)
from penstock.cluster.shard_calls import ReplicaReport

A, B, C = (BrokerName(name) for name in ("mq-0", "mq-1", "mq-2"))
REPLICA = {broker: f"{number:032x}" for number, broker in enumerate((A, B, C), start=1)}
BLANK = "b" * 32
RECORD = ShardRecord(
    epoch=70,
    leader=Leader(broker=A, replica=REPLICA[A], boot=4),
    in_sync=(REPLICA[A], REPLICA[B]),
    replicas={replica: broker for broker, replica in REPLICA.items()},
    min_in_sync=2,
)
LEFT = ReplicaReport(REPLICA[C], is_open=True, promised=69, log_epoch=68, end=1_000, committed=900)
NEW_DISK = ReplicaReport(BLANK, is_open=True, promised=0)
STILL_THERE = ReplicaReport(REPLICA[A], is_open=True, promised=70, log_epoch=68, end=1_000)
CHOICE = Choice(C, "root", 5_000, jump=7)


def answers(broker: BrokerName, report: ReplicaReport | None) -> Seen:
    return Seen(broker, True, True, report)


def gone(broker: BrokerName) -> Seen:
    return Seen(broker, False, False)


LOST = [answers(A, NEW_DISK), gone(B), answers(C, LEFT)]


def drawer() -> Callable[[], str]:
    drawn = count(100)
    return lambda: f"{next(drawn):032x}"


def rule(*seen: Seen, record: ShardRecord | None = RECORD, chosen: BrokerName = C) -> str:
    problem = problem_of(record, seen, chosen)
    return "" if problem is None else f"{problem.rule}; {problem.way_out}"


def test_a_shard_whose_replicas_in_sync_are_lost_can_be_recovered() -> None:
    assert rule(*LOST) == ""
    assert most(LOST) == C


@pytest.mark.parametrize(
    ("of_a", "text"),
    [
        (answers(A, replace(NEW_DISK, leads=70)), "is led by broker 'mq-0'"),
        (answers(A, STILL_THERE), "in sync at broker 'mq-0', which answers; wait until it leads"),
        (answers(A, replace(STILL_THERE, is_open=False)), "in sync at broker 'mq-0', which is not open"),
        (answers(A, replace(STILL_THERE, halt="disk")), "which has halted because its disk failed"),
        (Seen(A, True, False), "in sync at broker 'mq-0', which is alive and does not answer"),
        (answers(A, replace(NEW_DISK, log_epoch=68, end=1_001)), "more at broker 'mq-0' than at broker 'mq-2'"),
    ],
)
def test_a_shard_that_may_go_on_by_itself_is_not_recovered(of_a: Seen, text: str) -> None:
    assert text in rule(of_a, gone(B), answers(C, LEFT))


@pytest.mark.parametrize(
    ("of_c", "text"),
    [
        (gone(C), "has no open replica at broker 'mq-2' that answers; choose one of mq-0"),
        (answers(C, None), "has no open replica at broker 'mq-2'"),
        (answers(C, replace(LEFT, is_open=False)), "has no open replica at broker 'mq-2'"),
        (answers(C, replace(LEFT, halt="disk")), "whose disk failed"),
    ],
)
def test_a_replica_that_cannot_lead_is_not_chosen(of_c: Seen, text: str) -> None:
    assert text in rule(answers(A, NEW_DISK), gone(B), of_c)


def test_replicas_in_sync_that_have_halted_do_not_keep_a_lost_record_of_the_coordinator() -> None:
    """The coordinator went back: no replica leads by its record, not even one that it names."""
    halted = [answers(A, replace(STILL_THERE, promised=90, halt="coordinator")), gone(B), answers(C, LEFT)]

    assert rule(*halted, chosen=A) == ""
    assert rule(*halted, chosen=A, record=None) == ""
    assert "is new" in rule(answers(A, NEW_DISK), gone(B), answers(C, None), record=None, chosen=A)


@pytest.mark.parametrize("record", [None, RECORD], ids=["gone", "old"])
@pytest.mark.parametrize(
    ("of_b", "text"),
    [
        (Seen(B, True, False), "may have more at broker 'mq-1', which is alive and does not answer"),
        (answers(B, ReplicaReport(REPLICA[B], False, promised=91)), "at broker 'mq-1', where its log is not open"),
        (answers(B, None), ""),
        (gone(B), ""),
    ],
)
def test_without_the_newest_record_a_broker_that_may_still_answer_is_waited_for(
    record: ShardRecord | None, of_b: Seen, text: str
) -> None:
    """Of a broker that was starting, it was not asked whether it had more: it seemed to be none in sync."""
    halted = replace(STILL_THERE, promised=90, halt="coordinator")
    found = rule(answers(A, halted), of_b, answers(C, LEFT), record=record, chosen=A)

    assert (found == "") == (text == "")
    assert text in found


def test_the_record_has_the_chosen_replica_alone_in_sync_and_an_epoch_above_all_promises() -> None:
    seen = [answers(A, replace(NEW_DISK, promised=5 << EPOCH_BITS)), gone(B), answers(C, LEFT)]

    record = recovered(RECORD, seen, (A, B, C), CHOICE, drawer())

    assert (record.in_sync, record.min_in_sync) == ((REPLICA[C],), 1)
    assert record.leader == Leader(broker=C, replica=REPLICA[C], boot=0), "it is elected as after a restart"
    assert record.epoch == (5 + 1 + 7) << EPOCH_BITS
    assert record.replicas == {BLANK: A, REPLICA[B]: B, REPLICA[C]: C}
    (recovery,) = record.recoveries
    assert recovery == Recovery(
        epoch=record.epoch,
        broker=C,
        replica=REPLICA[C],
        end=1_000,
        by="root",
        at_ms=5_000,
        lost=(REPLICA[A], REPLICA[B]),
    )
    assert is_recovered(record, REPLICA[C])
    assert not is_recovered(record.model_copy(update={"in_sync": (REPLICA[C], BLANK)}), REPLICA[C])


def test_a_record_that_is_gone_is_made_anew_with_a_place_for_each_broker() -> None:
    record = recovered(None, [gone(A), gone(B), answers(C, LEFT)], (A, B, C), CHOICE, drawer())

    assert sorted(record.replicas.values()) == [A, B, C]
    assert record.epoch > LEFT.promised + 2**EPOCH_BITS


def test_the_last_recoveries_are_kept() -> None:
    record: ShardRecord = RECORD
    for at in range(RECOVERIES_MAX + 2):
        record = recovered(record, LOST, (A, B, C), replace(CHOICE, at_ms=at), drawer())

    assert [each.at_ms for each in record.recoveries] == list(range(2, RECOVERIES_MAX + 2))
    assert record == ShardRecord.model_validate_json(record.model_dump_json())


def test_a_replica_that_was_counted_as_lost_begins_anew_unless_it_has_heard_of_a_leader_since() -> None:
    record = recovered(RECORD, LOST, (A, B, C), CHOICE, drawer())

    assert lost_by(record, REPLICA[B], promised=70) == record.recoveries[0]
    assert lost_by(record, REPLICA[B], promised=record.epoch) is None
    assert lost_by(record, REPLICA[C], promised=69) is None
    assert lost_by(RECORD, REPLICA[B], promised=70) is None


def test_a_halted_replica_goes_on_only_after_a_recovery_that_explains_it() -> None:
    record = recovered(RECORD, LOST, (A, B, C), CHOICE, drawer())
    epoch = record.epoch

    assert after_halt(record, "committed", epoch + 1, 68) is AfterHalt.BEGIN_ANEW
    assert after_halt(record, "committed", epoch + 1, epoch + 1) is None, "it has records from after the recovery"
    assert after_halt(record, "coordinator", 90, 68) is AfterHalt.OPEN_AGAIN
    assert after_halt(record, "coordinator", epoch + 1, 68) is None, "the coordinator went back since"
    assert after_halt(record, "disk", 69, 68) is None
    assert after_halt(RECORD, "committed", 71, 68) is None
    assert after_halt(None, "coordinator", 71, 68) is None
