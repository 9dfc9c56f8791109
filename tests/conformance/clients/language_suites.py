"""Clients of Go and Node: the suite of amqp091-go as its project publishes it, and cases of ours over those for Node.

The packages for Node have no tests, so ours go through their interfaces, with Node's own test runner. In the suite of
amqp091-go only the place of RabbitMQ's management is changed.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

from conformance.clients.languages import variables, with_packages
from conformance.clients.management import Management, management
from conformance.clients.outcome import Outcome
from conformance.clients.python_suites import expected_skips, outcome_of
from conformance.clients.runs import Run

HERE = Path(__file__).parent
GO_MODULE = "github.com/rabbitmq/amqp091-go@v1.16.0"
GO_TAG = "//go:build integration"
GO_QUICK_CASES = 30
# These cases need what others leave: a message in the queue that both use.
GO_AFTER = {"TestIntegrationGetEmpty": "TestIntegrationGetOk"}
SUITE_SECONDS_MAX = 900
_GO_END = re.compile(r"--- (PASS|FAIL|SKIP): (\w+) \(")
_NODE_END = re.compile(r"(not ok|ok) \d+ - (.*)")
_ENDS = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped", "ok": "passed", "not ok": "failed"}


def amqp091_go(run: Run) -> Outcome:
    """Run the suite of amqp091-go; a case that panics ends it, and all after that count as failed."""
    folder, program = _go_suite(run.work)
    drawn = run.drawn("amqp091-go", _go_cases(folder), GO_QUICK_CASES, GO_AFTER)
    skipped = expected_skips("amqp091-go", drawn)
    chosen = "|".join(case for case in drawn if case not in skipped)
    with management(run.plain_port, run.full_port, run.grpc_uri, run.work) as beside:
        command = str(program), "-test.v", "-test.run", f"^({chosen})$"
        printed = _call(folder, run, *command, environment=_go_environment(beside))
    return outcome_of("amqp091-go", drawn, skipped, _ends(printed, _GO_END))


def amqplib(run: Run) -> Outcome:
    """Run all cases over amqplib: they take seconds."""
    return _node_cases("amqplib", HERE / "node", run)


def amqp_client_js(run: Run) -> Outcome:
    """Run all cases over amqp-client.js, which connects by WebSockets."""
    return _node_cases("amqp-client.js", HERE / "websocket", run)


def _node_cases(client: str, source: Path, run: Run) -> Outcome:
    folder = with_packages(source, run.work / f"cases-{source.name}")
    environment = {**variables(run.url), "AMQP_WS_URL": f"ws://127.0.0.1:{run.web_port}"}
    command = "node", "--test", "--test-reporter=tap", "cases.test.js"
    ends = _ends(_call(folder, run, *command, environment=environment), _NODE_END)
    return outcome_of(client, [end["case"] for end in ends], {}, ends)


def _go_suite(work: Path) -> tuple[Path, Path]:
    """Return a copy of the module, and the program that its tests are built into."""
    asked = ["go", "mod", "download", "-json", GO_MODULE]
    answer = json.loads(subprocess.run(asked, cwd=work, check=True, capture_output=True, text=True).stdout)
    folder, program = work / "amqp091-go", work / "amqp091-go.test"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(answer["Dir"], folder, copy_function=shutil.copyfile)
    subprocess.run(["chmod", "-R", "u+w", str(folder)], check=True)
    _ask_elsewhere(folder / "internal" / "utils" / "http.go")
    subprocess.run(["go", "test", "-c", "-tags", "integration", "-o", str(program), "."], cwd=folder, check=True)
    return folder, program


def _ask_elsewhere(requests: Path) -> None:
    """Have the suite's requests go to the address in MANAGEMENT."""
    text = requests.read_text()
    for usual in ('"http://localhost:15672/api', '"http://localhost:"+port+"/api'):
        assert usual in text, f"{requests} does not ask {usual}"
        text = text.replace(usual, 'os.Getenv("MANAGEMENT")+"/api')
    requests.write_text(text.replace('"net/http"\n', '"net/http"\n\t"os"\n'))


def _go_environment(beside: Management) -> dict[str, str]:
    return {
        **variables(f"amqp://guest:guest@127.0.0.1:{beside.amqp_port}/%2F"),
        "MANAGEMENT": f"http://127.0.0.1:{beside.http_port}",
        "RABBITMQ_RABBITMQCTL_PATH": str(beside.rabbitmqctl),
    }


def _go_cases(folder: Path) -> list[str]:
    """Return the cases of the files that ask for a broker: those of the others talk to a server of their own."""
    files = (file.read_text() for file in sorted(folder.glob("*_test.go")))
    cases = [case for text in files if GO_TAG in text for case in re.findall(r"^func (Test\w+)\(", text, re.MULTILINE)]
    return [case for case in cases if case != "TestMain"]


def _call(folder: Path, run: Run, *command: str, environment: dict[str, str]) -> str:
    """Return what a suite prints. Its exit status says only that a case failed, which the lines say, too."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SUITE_SECONDS_MAX,
        check=False,
    )
    (run.work / f"{folder.name}.log").write_text(done.stdout)
    return done.stdout


def _ends(printed: str, pattern: re.Pattern[str]) -> list[dict[str, str]]:
    found = [match for line in printed.splitlines() if (match := pattern.match(line))]
    return [{"case": each[2], "end": _ENDS[each[1]], "reason": "skipped by the suite"} for each in found]
