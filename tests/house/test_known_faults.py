"""Checks the list of known faults without building anything.

Each can still be put back, and `make test-crash` runs the test that must find it. `make long-faults` shows whether the
test does.
"""

import re
from pathlib import Path

from tools.known_faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[2]
CARGO = re.compile(r"cargo test .*-p (\S+) --test (\S+)")
PYTEST = re.compile(r"\{python\} -m pytest .*?(tests/[^:\s]+)")


def run_by_test_crash() -> set[tuple[str, str]]:
    """Return the tests of crates by crate and name, and Python's by path."""
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    found = re.search(r"^test-crash:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert found is not None
    tests: set[tuple[str, str]] = set()
    for line in found[1].splitlines():
        crate = re.search(r"-p (\S+)", line)
        names = re.findall(r"--test (\S+)", line) if crate else re.findall(r"tests/\S+", line)
        tests.update((crate[1] if crate else "", name) for name in names)
    return tests


def found_by(fault: Fault) -> tuple[str, str]:
    cargo, python = CARGO.fullmatch(fault.command), PYTEST.match(fault.command)
    assert cargo or python, fault.command
    return (cargo[1], cargo[2]) if cargo else ("", python[1] if python else "")


def test_each_fault_can_be_put_back() -> None:
    counts = {fault.name: (ROOT / fault.file).read_text().count(fault.old) for fault in FAULTS}

    assert {name: count for name, count in counts.items() if count != 1} == {}
    assert len(counts) == len(FAULTS), "two faults have the same name"


def test_make_test_crash_runs_the_test_that_finds_it() -> None:
    run = run_by_test_crash()

    assert [fault.name for fault in FAULTS if found_by(fault) not in run] == []
