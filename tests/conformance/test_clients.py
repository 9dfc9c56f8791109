"""The own suites of AMQP's clients against the broker, with a table at the end: no case fails, and few are skipped.

A skip needs a difference from RabbitMQ that docs/amqp.md lists.
"""

import json
import re
import socket
import tomllib
from pathlib import Path

import pytest

from conformance.clients.language_suites import GO_AFTER, GO_MODULE
from conformance.clients.outcome import Outcome, faults_of, table
from conformance.clients.python_suites import PYTHON_SUITES, function_of, outcome_of
from conformance.clients.relay import late_answers
from conformance.clients.runners import RUNNERS
from conformance.clients.runs import EXPECTED_SKIPS, ROOT, Certificates, Run

PAGE = (ROOT / "docs" / "amqp.md").read_text()
DOCUMENTED = " ".join(PAGE.split())
CLIENTS = Path(__file__).with_name("clients")
SECONDS_MAX = 60


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
    lines = table([Outcome("some client", 12, 10, {"known": 2}, [], ["slow one"])]).splitlines()

    assert [line.split() for line in lines] == [
        ["client", "cases", "passed", "failed", "skipped"],
        ["some", "client", "12", "10", "0", "2"],
        ["skipped", "2:", "known"],
        ["passed", "when", "run", "again:", "slow", "one"],
    ]


def test_a_case_that_was_run_again_has_its_second_end() -> None:
    ends = [
        {"case": case, "end": end, "reason": ""} for case, end in (("a", "passed"), ("b", "passed"), ("c", "failed"))
    ]

    outcome = outcome_of("some client", ["a", "b", "c"], {}, ends, ["b", "c"])

    assert outcome == Outcome("some client", 3, 2, {}, ["c"], ["b"])
    assert faults_of(outcome, "") == ["failed: c"]


def test_a_case_is_late_by_the_name_of_its_function() -> None:
    assert function_of("tests/test_a.py::test_one") == "test_one"
    assert function_of("tests/test_a.py::TestCase::test_one[amqp-a::b[c]]") == "test_one"


def test_late_answers_come_whole_and_in_their_order_until_the_broker_ends() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as broker,
        late_answers(broker.getsockname()[1]) as port,
        socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX) as client,
    ):
        broker.settimeout(SECONDS_MAX)
        with broker.accept()[0] as connection:
            connection.settimeout(SECONDS_MAX)
            client.sendall(b"asked")
            client.shutdown(socket.SHUT_WR)
            asked = b"".join(iter(lambda: connection.recv(10), b""))
            for answer in (b"first, ", b"second"):
                connection.sendall(answer)

        answers = b"".join(iter(lambda: client.recv(10), b""))

    assert (asked, answers) == (b"asked", b"first, second")


def test_the_document_names_each_client_with_its_version() -> None:
    rows = re.findall(r"^\| ([\w.@ -]+) \| ([\d.]+) \| ", PAGE, re.MULTILINE)

    versions = {suite.client: suite.source.version for suite in PYTHON_SUITES}
    versions["amqp091-go"] = GO_MODULE.partition("@v")[2]
    versions["amqplib"] = package_version("node", "amqplib")
    versions["amqp-client.js"] = package_version("websocket", "@cloudamqp/amqp-client")
    versions["Java client"] = artifact_version("java", "amqp-client")
    versions["PerfTest"] = artifact_version("perf", "perf-test")
    assert dict(rows) == versions
    assert versions.keys() == RUNNERS.keys()


def package_version(folder: str, name: str) -> str:
    version: str = json.loads((CLIENTS / folder / "package.json").read_text())["dependencies"][name]
    return version


def artifact_version(folder: str, name: str) -> str:
    pom = (CLIENTS / folder / "pom.xml").read_text()
    found = re.search(rf"<artifactId>{name}</artifactId>\s*<version>([\d.]+)</version>", pom)
    assert found is not None, f"{folder}/pom.xml does not name {name}"
    return found[1]


def test_a_case_is_drawn_with_the_one_whose_message_it_needs() -> None:
    cases = ["needed", *(f"case {number}" for number in range(20)), "needing"]

    for seed in range(50):
        drawn = a_run(seed).drawn("some client", cases, 5, {"needing": "needed"})

        assert "needing" not in drawn or "needed" in drawn
        assert len(drawn) in {5, 6}
        assert drawn == [case for case in cases if case in drawn]
    assert a_run(None).drawn("some client", cases, 5, GO_AFTER) == cases


def a_run(seed: int | None) -> Run:
    nowhere = Path()
    certificates = Certificates(nowhere, nowhere, nowhere, nowhere, nowhere)
    return Run(0, 0, 0, 0, "", certificates, nowhere, seed, "")
