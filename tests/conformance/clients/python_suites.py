"""The own suites of Python's clients, with pytest in an environment for each, as their projects publish them.

Changed in them is only where the broker is. Cases for other brokers, other systems and without a broker are left out; a
case in expected_skips.toml is not run and counts as skipped.
"""

import json
import os
import shutil
import subprocess
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from conformance.clients.outcome import Outcome
from conformance.clients.relay import late_answers
from conformance.clients.runs import EXPECTED_SKIPS, Run, Runner
from conformance.clients.sources import DebianSource, Sdist, Source, environment, unpacked

HERE = Path(__file__).parent
CASE_SECONDS_MAX = 240
SUITE_SECONDS_MAX = 3600
_USUAL_PORT = "5672"
_PLAIN_PORT = "RABBITMQ_5672_TCP"


@dataclass(frozen=True, slots=True)
class Suite:
    """A client's suite: `paths` are its files, `left_out` an expression that leaves out others' brokers.

    A quick run draws at most `quick_cases`. `prepare` writes into the unpacked suite where the broker is. A suite with
    `again_max` gives its cases fractions of a second, which a busy machine may lack: up to so many that fail run again.
    Cases of the functions in `late` hear the broker late, over a relay.
    """

    client: str
    source: Source
    packages: Sequence[str]
    paths: Sequence[str]
    quick_cases: int
    prepare: Callable[[Path, Run], None] = lambda folder, run: None
    left_out: str = ""
    again_max: int = 0
    late: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class _Session:
    """How pytest is called for a suite."""

    python: Path
    folder: Path
    environment: dict[str, str]
    left_out: str

    def run(self, *arguments: str, cases_file: Path) -> list[dict[str, str]]:
        """Run pytest and return the lines that its plugin wrote."""
        cases_file.unlink(missing_ok=True)
        command = [
            *(str(self.python), "-m", "pytest", "-p", "case_report", "-p", "no:cacheprovider", "--quiet"),
            *("--timeout", str(CASE_SECONDS_MAX), "-W", "ignore", *arguments),
            *(("-k", self.left_out) if self.left_out else ()),
        ]
        with cases_file.with_suffix(".log").open("w") as log:
            subprocess.run(
                command,
                cwd=self.folder,
                env={**self.environment, "CASES_FILE": str(cases_file)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=SUITE_SECONDS_MAX,
                check=False,
            )
        assert cases_file.exists(), f"pytest ran no case:\n{cases_file.with_suffix('.log').read_text()[-4000:]}"
        return [json.loads(line) for line in cases_file.read_text().splitlines()]

    def run_cases(self, cases: Sequence[str], name: str) -> list[dict[str, str]]:
        """Run these cases, and return how each ended."""
        if not cases:
            return []
        chosen = Path(name + ".chosen")
        chosen.write_text("".join(f"{case}\n" for case in cases))
        return self.run(f"@{chosen}", cases_file=Path(name + ".ends"))


def run_suite(suite: Suite) -> Runner:
    """Return what runs a suite."""

    def run_it(run: Run) -> Outcome:
        folder = unpacked(suite.source, run.work)
        suite.prepare(folder, run)
        python = environment(suite.source, folder, suite.packages, run.work)
        session = _Session(python, folder, _environment(run), suite.left_out)
        name = str(run.work / suite.source.folder)
        cases = [line["case"] for line in session.run(*suite.paths, "--collect-only", cases_file=Path(name + ".cases"))]
        drawn = run.drawn(suite.client, cases, suite.quick_cases)
        skipped = expected_skips(suite.client, drawn)
        ends = _ends_of(suite, run, session, [case for case in drawn if case not in skipped], name)
        outcome = outcome_of(suite.client, drawn, skipped, ends)
        if not 0 < len(outcome.failed) <= suite.again_max:
            return outcome
        again = _ends_of(suite, run, session, outcome.failed, name + "-again")
        first = [end for end in ends if end["case"] not in outcome.failed]
        return outcome_of(suite.client, drawn, skipped, [*first, *again], outcome.failed)

    return run_it


def _ends_of(suite: Suite, run: Run, session: _Session, cases: Sequence[str], name: str) -> list[dict[str, str]]:
    """Run these cases, some of them over a relay, and return how each ended."""
    late = [case for case in cases if function_of(case) in suite.late]
    ends = session.run_cases([case for case in cases if case not in late], name)
    if not late:
        return ends
    with late_answers(run.plain_port) as port:
        relayed = replace(session, environment={**session.environment, _PLAIN_PORT: str(port)})
        return [*ends, *relayed.run_cases(late, name + "-late")]


def function_of(case: str) -> str:
    """Return the name of a case's function."""
    return case.partition("[")[0].rpartition("::")[2]


def expected_skips(client: str, cases: Sequence[str]) -> dict[str, str]:
    """Return the reasons of those cases that are not run."""
    reasons: dict[str, list[str]] = tomllib.loads(EXPECTED_SKIPS.read_text()).get(client, {})
    patterns = [(pattern.replace("[", "[[]"), reason) for reason, listed in reasons.items() for pattern in listed]
    return {case: reason for case in cases for pattern, reason in patterns if fnmatchcase(case, pattern)}


def outcome_of(
    client: str,
    drawn: Sequence[str],
    skipped: dict[str, str],
    ends: Sequence[dict[str, str]],
    repeated: Sequence[str] = (),
) -> Outcome:
    """Return the outcome; a case that the suite itself skips counts as such, one without an end has failed.

    Of cases that were `repeated`, the ends are those of the second time.
    """
    failed = {line["case"] for line in ends if line["end"] == "failed"}
    reasons = Counter(skipped.values())
    own = {line["case"]: line["reason"] for line in ends if line["end"] == "skipped"}
    reasons.update(own.values())
    passed = {line["case"] for line in ends if line["end"] == "passed"} - failed - own.keys()
    left = [case for case in drawn if case not in passed and case not in skipped and case not in own]
    again = [case for case in repeated if case in passed]
    return Outcome(client, len(drawn), len(passed), dict(reasons), sorted({*left, *failed}), again)


def _environment(run: Run) -> dict[str, str]:
    """Return the variables of a suite: the machine's, and where the brokers are."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "PYTEST_"))},
        "PYTHONPATH": str(HERE),
        "RABBITMQ_HOST": "localhost",
        _PLAIN_PORT: str(run.plain_port),
        "RABBITMQ_5671_TCP": str(run.tls_port),
        "BROKER_COMMAND": run.command,
        "BROKER_FOLDER": str(run.work / "brokers"),
    }


def _say_port(*files: str) -> Callable[[Path, Run], None]:
    """Return what writes the broker's port into files that have the usual one in them.

    The empty settings keep pytest from those of the folders above, as this suite was not made for pytest.
    """

    def write(folder: Path, run: Run) -> None:
        (folder / "pytest.ini").touch()
        for name in files:
            file = folder / name
            file.write_text(file.read_text().replace(_USUAL_PORT, str(run.plain_port)))

    return write


def _take_containers_place(folder: Path, run: Run) -> None:
    """Put brokers of ours where the suite starts containers."""
    shutil.copy(HERE / "docker_client.py", folder / "tests" / "docker_client.py")


def _give_fixtures(folder: Path, run: Run) -> None:
    shutil.copy(HERE / "aiormq_conftest.py", folder / "conftest.py")
    _copy_certificates(run, folder / "tests" / "certs", ("ca.pem", "client.pem", "client.key"))


def _give_certificates(folder: Path, run: Run) -> None:
    """Write the files that this suite asks for and that were not published: broken ones are of another authority."""
    names = ("ca_certificate.pem", "client_certificate.pem", "client_key.pem")
    certs = folder / "t" / "certs"
    _copy_certificates(run, certs, names)
    shutil.copy(run.certificates.foreign, certs / "client_certificate_broken.pem")
    shutil.copy(run.certificates.foreign_key, certs / "client_key_broken.pem")


def _copy_certificates(run: Run, target: Path, names: tuple[str, str, str]) -> None:
    target.mkdir(exist_ok=True)
    files = run.certificates.authority, run.certificates.client, run.certificates.client_key
    for file, name in zip(files, names, strict=True):
        shutil.copy(file, target / name)


_PYTEST = "pytest==9.2.0", "pytest-timeout==2.4.0"

PYTHON_SUITES = [
    Suite(
        "pika",
        DebianSource("pika", "1.3.2", "python-pika", "trixie"),
        (*_PYTEST, "tornado==6.6.1", "gevent==26.9.0", "Twisted==26.10.0", "setuptools<81"),
        ("tests/acceptance/blocking_adapter_test.py", "tests/acceptance/async_adapter_tests.py"),
        quick_cases=120,
        prepare=_say_port("tests/base/async_test_base.py", "tests/acceptance/blocking_adapter_test.py"),
        # A machine with Linux has no kqueue.
        left_out="not kqueue",
    ),
    Suite(
        "aio-pika",
        Sdist("aio-pika", "10.2.1"),
        (*_PYTEST, "aiomisc==18.0.37", "aiomisc-pytest==2.0.0", "shortuuid==1.0.13", "timeout-decorator==0.5.0"),
        ("tests",),
        quick_cases=50,
        again_max=20,
        prepare=_take_containers_place,
        # The suite skips these with every broker.
        left_out="not test_internal_exchange and not test_channel_blocking_timeout"
        " and not (TestCaseAmqpWithConfirms and test_connection_close)",
        # As with aiormq, which this client is made of.
        late=("test_create_channels_during_reconnect", "test_leak_unclosed_channel"),
    ),
    Suite(
        "aiormq",
        Sdist("aiormq", "7.2.4"),
        (*_PYTEST, "aiomisc==18.0.37", "aiomisc-pytest==2.0.0"),
        ("tests",),
        quick_cases=50,
        again_max=20,
        prepare=_give_fixtures,
        # Two tasks of the client end its connection. With Python 3.11, if the close-ok is there in the next turn of the
        # event loop, the one that does not know the reason is first, also with RabbitMQ. Over TLS it never is.
        late=("test_closing_waiter_cancellation", "test_connection_close_during_publish_drain"),
    ),
    Suite(
        "kombu",
        Sdist("kombu", "5.7.0"),
        _PYTEST,
        ("t/integration/test_py_amqp.py",),
        quick_cases=40,
    ),
    Suite(
        "py-amqp",
        Sdist("amqp", "5.4.2"),
        _PYTEST,
        ("t/integration/test_rmq.py",),
        quick_cases=40,
        prepare=_give_certificates,
        # Those connect to a server in the Internet.
        left_out="not default_certs",
    ),
]
