"""The official client in Java: cases of ours with JUnit, and runs of RabbitMQ's PerfTest, both built by Maven.

Its own cases are not published with it.
"""

import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

from conformance.clients.languages import built, variables
from conformance.clients.outcome import Outcome
from conformance.clients.python_suites import outcome_of
from conformance.clients.runs import Run

HERE = Path(__file__).parent
SECONDS_MAX = 600
RUN_SECONDS_MAX = 120

# Options of PerfTest, which ends when all messages are published and consumed. Other clients' suites may have left an
# exchange of the name that it uses by itself.
PERF_RUNS = {
    "several publishers, and a consumer without acks": "--producers 2 --pmessages 5000 --cmessages 10000 --autoack"
    " --exchange perf-direct --queue perf-auto",
    "confirms, a prefetch and acks of several": "--confirm 100 --qos 100 --multi-ack-every 10 --size 1000"
    " --exchange perf-direct --flag persistent --pmessages 10000 --cmessages 10000 --queue perf-confirm",
    "transactions of both sides": "--ptxsize 10 --ctxsize 10 --pmessages 1000 --cmessages 1000"
    " --exchange perf-direct --queue perf-tx",
    "a quorum queue": "--quorum-queue --exchange perf-direct --queue perf-quorum --confirm 50 --qos 50"
    " --pmessages 5000 --cmessages 5000",
    "a stream": "--stream-queue --queue perf-stream --stream-consumer-offset first --confirm 50 --qos 50"
    " --exchange perf-direct --pmessages 5000 --cmessages 5000",
    "a topic exchange with several queues, and nacks": "--type topic --exchange perf-topic --queue-pattern perf-%d"
    " --queue-pattern-from 1 --queue-pattern-to 3 --producers 3 --consumers 3 --pmessages 2000 --cmessages 2000"
    " --nack --requeue false --flag mandatory --confirm 10",
}


def java(run: Run) -> Outcome:
    """Run all cases of ours: they take seconds."""
    folder = run.work / "cases-java"
    shutil.copytree(HERE / "java", folder, dirs_exist_ok=True)
    reports = folder / "target" / "surefire-reports"
    shutil.rmtree(reports, ignore_errors=True)
    _call(folder, run, "mvn", "-B", "-q", "test")
    ends = [end for file in sorted(reports.glob("TEST-*.xml")) for end in _ends(file)]
    return outcome_of("Java client", [end["case"] for end in ends], {}, ends)


def perf_test(run: Run) -> Outcome:
    """Run PerfTest with each list of options: one that does not end in time, or with an error, has failed."""
    folder = run.work / "perf-test"
    shutil.copytree(HERE / "perf", folder, dirs_exist_ok=True)
    if not (folder / "jars").exists():
        built(folder, "mvn", "-B", "-q", "dependency:copy-dependencies", f"-DoutputDirectory={folder / 'jars'}")
    ends = [{"case": name, "end": _perf_end(folder, run, options), "reason": ""} for name, options in PERF_RUNS.items()]
    return outcome_of("PerfTest", list(PERF_RUNS), {}, ends)


def _perf_end(folder: Path, run: Run, options: str) -> str:
    command = ["java", "-cp", "jars/*", "com.rabbitmq.perf.PerfTest", "--uri", run.url, *options.split()]
    return "passed" if _call(folder, run, *command, seconds_max=RUN_SECONDS_MAX) == 0 else "failed"


def _ends(report: Path) -> list[dict[str, str]]:
    """Return the ends of the cases in a report of Maven's."""
    cases = ElementTree.parse(report).getroot().findall("testcase")
    return [
        {
            "case": f"{case.get('classname')}.{case.get('name')}",
            "end": "failed" if {"failure", "error"} & {part.tag for part in case} else "passed",
            "reason": "",
        }
        for case in cases
    ]


def _call(folder: Path, run: Run, *command: str, seconds_max: float = SECONDS_MAX) -> int | None:
    """Return the exit status, or None if time is up. A log beside the folder keeps the output."""
    environment = {
        **variables(run.url),
        "AMQPS_URL": f"amqps://guest:guest@localhost:{run.tls_port}/%2F",
        "AUTHORITY": str(run.certificates.authority),
        "FOREIGN": str(run.certificates.foreign),
    }
    with folder.with_suffix(".log").open("a") as log:
        try:
            return subprocess.run(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=seconds_max,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            return None
