"""Checks which profile each target builds, and what the checks cover."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
PROFILES = tomllib.loads((ROOT / "Cargo.toml").read_text())["profile"]
MEASURED = ("bench", "bench-cluster", "bench-docs", "bench-streams", "long-soak", "test-hostile")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_test_is_type_checked() -> None:
    mypy = PROJECT["tool"]["mypy"]

    assert "tests" in mypy["files"]
    assert [pattern for pattern in mypy["exclude"] if "tests" in pattern] == []
    assert [each["module"] for each in mypy["overrides"] if each.get("ignore_errors")] == [["penstock.v1.*"]]


def test_figures_are_measured_with_the_release_profile() -> None:
    assert [name for name in MEASURED if "release" not in prerequisites(name)] == []
    assert "--release" in (ROOT / "tools" / "build_wheels.sh").read_text()


def test_running_the_broker_needs_no_tools_for_tests() -> None:
    assert prerequisites("run") == ["setup"]
    assert prerequisites("setup") == [".venv/.built"]
    assert ".venv/.dev" in prerequisites("lint")
    assert ".venv/.dev" in prerequisites("test-python")


def test_both_profiles_check_the_same() -> None:
    quick, release = PROFILES["quick"], PROFILES["release"]

    assert quick["inherits"] == "release"
    assert release["overflow-checks"]
    assert "overflow-checks" not in quick


def prerequisites(target: str) -> list[str]:
    found = re.search(rf"^{re.escape(target)}:([^#\n]*)", MAKEFILE, re.MULTILINE)
    assert found is not None, target
    return found[1].split()


def test_the_fast_tests_are_those_that_start_no_broker() -> None:
    recipe = re.search(r"^test-fast:.*\n\t(.*)", MAKEFILE, re.MULTILINE)

    assert recipe is not None
    assert set(re.findall(r"tests/\w+", recipe[1])) == {"tests/unit", "tests/property", "tests/house"}
