"""The own suites of AMQP's clients against the broker, with a table at the end: no case fails, and few are skipped.

A skip needs a difference from RabbitMQ that docs/amqp.md lists.
"""

import tomllib

import pytest

from conformance.clients.outcome import Outcome, faults_of, table
from conformance.clients.runners import RUNNERS
from conformance.clients.runs import EXPECTED_SKIPS, ROOT, Run

DOCUMENTED = " ".join((ROOT / "docs" / "amqp.md").read_text().split())


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("client", RUNNERS)
def test_a_client_passes(client: str, run: Run, outcomes: list[Outcome]) -> None:
    outcome = RUNNERS[client](run)
    outcomes.append(outcome)

    assert faults_of(outcome, DOCUMENTED) == []


def test_every_reason_of_an_expected_skip_is_documented() -> None:
    listed = tomllib.loads(EXPECTED_SKIPS.read_text())

    assert listed.keys() <= RUNNERS.keys()
    assert [reason for reasons in listed.values() for reason in reasons if reason not in DOCUMENTED] == []


def test_failures_and_skips_without_a_documented_reason_are_faults() -> None:
    outcome = Outcome("some client", 12, 9, {"known": 1, "unknown": 1}, ["a case"])

    assert faults_of(outcome, "the differences: known ones") == [
        "failed: a case",
        "skipped for a difference that docs/amqp.md does not list: unknown",
        "2 of 12 cases are skipped",
    ]
    assert faults_of(Outcome("none", 0, 0), "") == ["no case has passed"]
    assert faults_of(Outcome("some client", 10, 9, {"known": 1}), "known") == []


def test_the_table_has_a_row_for_each_client_and_a_line_for_each_reason() -> None:
    lines = table([Outcome("some client", 12, 10, {"known": 2})]).splitlines()

    assert [line.split() for line in lines] == [
        ["client", "cases", "passed", "failed", "skipped"],
        ["some", "client", "12", "10", "0", "2"],
        ["skipped", "2:", "known"],
    ]
