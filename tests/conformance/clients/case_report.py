"""A plugin of pytest for the suites of other projects: writes which cases there are, and how each of them ended.

It runs in the environment of such a suite and imports nothing else. CASES_FILE gets a line of JSON for each case.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

_REASON_CHARACTERS_MAX = 4000


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "env(name): the environment that a case needs")
    config.addinivalue_line("markers", "flaky(reruns, reruns_delay): a case that its project tries again")


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.option.collectonly:
        _write([{"case": item.nodeid} for item in session.items])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write the end of a case: of the call, or of what came before or after it and did not pass."""
    if report.when == "call" or report.outcome != "passed":
        reason = "" if report.passed else str(report.longrepr)[-_REASON_CHARACTERS_MAX:]
        _write([{"case": report.nodeid, "end": report.outcome, "reason": reason}])


def _write(lines: Sequence[dict[str, str]]) -> None:
    with Path(os.environ["CASES_FILE"]).open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
