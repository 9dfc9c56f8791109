"""What a schedule does, as a table; and times of cron over changes of the clock and after outages."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_operator.api import ScheduledBackupSpec
from penstock_operator.desired.cron import Cron, ScheduleError
from penstock_operator.desired.schedule import Decision, Delete, Make, Schedule, Skip, decide

MADE_AT = "2026-03-01T00:00:00"
# Name, phase, and when it completed.
Known = tuple[str, str, str]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def spec(**more: Any) -> ScheduledBackupSpec:
    template = {"target": {"volume": {"claimName": "backups"}}}
    return ScheduledBackupSpec.model_validate(
        {"clusterRef": {"name": "mq"}, "schedule": "0 2 * * *", "template": template, **more}
    )


def backup(name: str, phase: str, completed: str = "", **metadata: Any) -> dict[str, Any]:
    about = {"labels": {"penstock.dev/scheduled-backup": "nightly"}}
    about |= {"annotations": {"penstock.dev/scheduled-backup-uid": "uid-1"}}
    ended = {"completedAt": f"{completed}Z"} if completed else {}
    return {"metadata": {"name": name, **about, **metadata}, "status": {"phase": phase, **ended}}


def decided(now: str, last: str | None, known: list[Known], **more: Any) -> Decision:
    wanted = spec(**more)
    schedule = Schedule("nightly", "uid-1", at(MADE_AT), at(last) if last else None)
    backups = [backup(*each) for each in known]
    return decide(wanted, Cron.parse(wanted.schedule, wanted.time_zone), schedule, at(now), backups)


def made(day: str, missed: str | None = None) -> Make:
    due = at(f"2026-{day}T02:00:00")
    return Make(f"nightly-{due:%Y%m%d}-020000", due, at(f"2026-{missed}T02:00:00") if missed else None)


@pytest.mark.parametrize(
    ("now", "last", "known", "more", "actions"),
    [
        ("2026-03-01T01:59:59", None, [], {}, []),
        ("2026-03-01T02:00:00", None, [], {}, [made("03-01")]),
        ("2026-03-02T01:00:00", "2026-03-01T02:00:00", [], {}, []),
        # A long outage: one is made up.
        ("2026-05-01T12:00:00", "2026-03-01T02:00:00", [], {}, [made("05-01", "03-02")]),
        (
            "2029-03-01T01:00:00",
            None,
            [],
            {},
            [Make("nightly-20290228-020000", at("2029-02-28T02:00:00"), at("2026-03-01T02:00:00"))],
        ),
        # One at a time, whether it runs or waits for its Cluster.
        (
            "2026-03-02T02:00:00",
            "2026-03-01T02:00:00",
            [("a", "Running", "")],
            {},
            [Skip(at("2026-03-02T02:00:00"), "a")],
        ),
        (
            "2026-03-02T02:00:00",
            "2026-03-01T02:00:00",
            [("a", "Pending", "")],
            {},
            [Skip(at("2026-03-02T02:00:00"), "a")],
        ),
        ("2026-03-02T02:00:00", "2026-03-01T02:00:00", [("a", "Failed", "")], {}, [made("03-02")]),
        # Made before a crash, and not in the status.
        ("2026-03-02T02:00:05", "2026-03-01T02:00:00", [("nightly-20260302-020000", "Running", "")], {}, []),
        # At once.
        ("2026-03-01T00:00:00", None, [], {"immediate": True}, [Make("nightly-20260301-000000", at(MADE_AT))]),
        ("2026-03-01T00:00:09", MADE_AT, [], {"immediate": True}, []),
        ("2026-03-01T02:00:00", None, [], {"immediate": True}, [made("03-01")]),
        # Suspended times are not made up.
        ("2026-03-05T02:00:00", "2026-03-01T02:00:00", [], {"suspend": True}, []),
    ],
)
def test_a_schedule_makes_what_is_due_and_no_more(
    now: str, last: str | None, known: list[Known], more: dict[str, Any], actions: list[Any]
) -> None:
    decision = decided(now, last, known, **more)

    assert list(decision.actions) == actions
    again = decided(now, f"{decision.last:%Y-%m-%dT%H:%M:%S}" if decision.last else None, known, **more)
    assert again.actions == (), "with the time in the status nothing is done twice"


def test_times_that_passed_while_it_was_suspended_are_dealt_with() -> None:
    suspended = decided("2026-03-05T12:00:00", "2026-03-01T02:00:00", [], suspend=True)

    assert suspended.last == at("2026-03-05T02:00:00")
    assert suspended.following is None


@pytest.mark.parametrize(
    ("now", "last", "since", "done", "more", "expected"),
    [
        ("03-01T01:00", None, None, None, {}, None),
        ("03-01T02:00", None, None, None, {}, "03-01T02:00"),
        ("03-02T02:00", "03-01T02:00", None, "03-01T02:00", {}, "03-02T02:00"),
        # It stays until a Backup has completed, also of a later time.
        ("03-01T02:05", "03-01T02:00", "03-01T02:00", "02-28T02:00", {}, "03-01T02:00"),
        ("03-02T02:00", "03-01T02:00", "03-01T02:00", None, {}, "03-01T02:00"),
        ("03-01T02:05", "03-01T02:00", "03-01T02:00", "03-01T02:00", {}, None),
        ("03-02T02:05", "03-02T02:00", "03-01T02:00", "03-02T02:00", {}, None),
        # One has completed, and the next is due.
        ("03-02T02:00", "03-01T02:00", "03-01T02:00", "03-01T02:00", {}, "03-02T02:00"),
        # An outage: the first time that was missed.
        ("03-05T12:00", "03-01T02:00", None, "03-01T02:00", {}, "03-02T02:00"),
        ("03-01T00:00", None, None, None, {"immediate": True}, "03-01T00:00"),
        # Times that pass while it is suspended are left out, and those before it as well.
        ("03-05T02:00", "03-01T02:00", None, "03-01T02:00", {"suspend": True}, None),
        ("03-05T02:00", "03-01T02:00", "03-01T02:00", None, {"suspend": True}, None),
        ("03-05T03:00", "03-05T02:00", None, "03-01T02:00", {}, None),
    ],
)
def test_a_time_is_due_until_a_backup_of_it_or_of_a_later_one_has_completed(
    now: str, last: str | None, since: str | None, done: str | None, more: dict[str, Any], expected: str | None
) -> None:
    wanted = spec(**more)
    schedule = Schedule("nightly", "uid-1", at(MADE_AT), _in_2026(last), _in_2026(since))
    ended = backup("done", "Completed", f"2026-{done}:05")
    ended["metadata"]["annotations"]["penstock.dev/due"] = f"2026-{done}:00Z"
    others = [backup("failed", "Failed"), backup("by-hand", "Completed", "2026-03-31T00:00:00", labels={})]
    backups = [*others, *([ended] if done else [])]

    decision = decide(wanted, Cron.parse(wanted.schedule), schedule, at(f"2026-{now}:00"), backups)

    assert decision.due_since == _in_2026(expected)


def _in_2026(text: str | None) -> datetime | None:
    return at(f"2026-{text}:00") if text else None


DONE: list[Known] = [
    ("a", "Completed", "2026-03-01T02:05:00"),
    ("b", "Completed", "2026-03-02T02:05:00"),
    ("failed", "Failed", ""),
    ("c", "Completed", "2026-03-03T02:05:00"),
    ("d", "Running", ""),
]


@pytest.mark.parametrize(
    ("retention", "deleted"),
    [
        ({}, []),
        ({"count": 3}, []),
        ({"count": 2}, ["a"]),
        ({"count": 1}, ["a", "b"]),
        ({"age": "36h"}, ["a"]),
        ({"age": "1m"}, ["a", "b"]),
        ({"count": 2, "age": "1d"}, ["a", "b"]),
        ({"count": 5, "age": "2d"}, ["a"]),
    ],
)
def test_completed_backups_go_by_count_and_age_and_never_the_newest(
    retention: dict[str, Any], deleted: list[str]
) -> None:
    decision = decided("2026-03-03T12:00:00", "2026-03-03T02:00:00", DONE, retention=retention)

    assert [each.name for each in decision.actions if isinstance(each, Delete)] == deleted


def test_backups_of_others_and_those_that_go_already_are_left() -> None:
    one = spec(retention={"count": 1})
    schedule = Schedule("nightly", "uid-1", at(MADE_AT), at("2026-03-03T02:00:00"))
    foreign = backup(
        "x", "Completed", "2026-03-01T02:00:00", annotations={"penstock.dev/scheduled-backup-uid": "uid-0"}
    )
    unnamed = backup("y", "Completed", "2026-03-01T02:00:00", labels={})
    going = backup("z", "Completed", "2026-03-01T02:00:00", deletionTimestamp="2026-03-03T00:00:00Z")
    own = [backup(name, phase, completed) for name, phase, completed in DONE[:2]]

    decision = decide(
        one, Cron.parse(one.schedule), schedule, at("2026-03-03T12:00:00"), [foreign, unnamed, going, *own]
    )

    assert decision.actions == (Delete("a"),)


@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected"),
    [
        ("0 2 * * *", "UTC", "2026-03-01T02:00:00", "2026-03-02T02:00:00"),
        ("0 2 * * *", "Europe/Oslo", "2026-01-01T00:00:00", "2026-01-01T01:00:00"),
        ("0 2 * * *", "Europe/Oslo", "2026-07-01T00:30:00", "2026-07-02T00:00:00"),
        # 02:30 does not exist on the day when summer begins, and comes just after.
        ("30 2 * * *", "Europe/Oslo", "2026-03-29T00:00:00", "2026-03-29T01:00:00"),
        ("30 2 * * *", "Europe/Oslo", "2026-03-29T01:00:00", "2026-03-30T00:30:00"),
        # 02:30 comes twice on the day when summer ends, and counts once.
        ("30 2 * * *", "Europe/Oslo", "2026-10-25T00:00:00", "2026-10-25T00:30:00"),
        ("30 2 * * *", "Europe/Oslo", "2026-10-25T00:30:00", "2026-10-26T01:30:00"),
        ("0 0 29 2 *", "UTC", "2026-03-01T00:00:00", "2028-02-29T00:00:00"),
        ("0 6 * * MON-FRI", "UTC", "2026-03-06T07:00:00", "2026-03-09T06:00:00"),
    ],
)
def test_the_next_time_is_that_of_cron_in_its_zone(expression: str, zone: str, after: str, expected: str) -> None:
    assert Cron.parse(expression, zone).next(at(after)) == at(expected)


@pytest.mark.parametrize(
    ("expression", "zone", "says"),
    [
        ("0 2 * *", "UTC", "has not five fields"),
        ("0 0 2 * * *", "UTC", "has not five fields"),
        ("61 2 * * *", "UTC", "bad minute"),
        ("0 0 31 2 *", "UTC", "bad day-of-month"),
        ("0 2 * * *", "Europe/Nowhere", "timeZone 'Europe/Nowhere' is not known"),
        ("0 2 * * *", "Europe", "timeZone 'Europe' is not known"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_with_the_reason(expression: str, zone: str, says: str) -> None:
    with pytest.raises(ScheduleError, match=says):
        Cron.parse(expression, zone)


@given(st.lists(st.text("0123456789*-,/#LWMONJA", min_size=1, max_size=8), min_size=5, max_size=5))
def test_any_text_is_a_schedule_or_is_refused(fields: list[str]) -> None:
    try:
        cron = Cron.parse(" ".join(fields))
    except ScheduleError:
        return
    assert cron.next(at(MADE_AT)) is None or cron.next(at(MADE_AT)) > at(MADE_AT)  # type: ignore[operator]


@given(
    st.sampled_from(["* * * * *", "*/7 * * * *", "30 2 * * *", "0 3 1 * *", "0 0 1 1 *", "15 1 * * SUN"]),
    st.sampled_from(["UTC", "Europe/Oslo", "America/New_York"]),
    st.integers(0, 365 * 86_400),
    st.integers(1, 10_000),
)
def test_the_latest_time_in_a_span_is_the_last_that_comes_in_it(
    expression: str, zone: str, seconds: int, minutes: int
) -> None:
    cron = Cron.parse(expression, zone)
    after = at("2026-01-01T00:00:00") + timedelta(seconds=seconds)
    until = after + timedelta(minutes=minutes)

    last, each = None, cron.next(after)
    while each is not None and each <= until:
        last, each = each, cron.next(each)

    assert cron.latest(after, until) == last
