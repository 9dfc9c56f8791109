"""Holds requirements.lock to pyproject.toml: its pins satisfy the ranges, and it has nothing but names and versions."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def pinned() -> dict[str, str]:
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
    pins = dict(line.split("==") for line in lines)
    return {canonicalize_name(name): version for name, version in pins.items()}


def test_every_requirement_is_pinned_within_its_range() -> None:
    pins = pinned()
    wanted = [Requirement(line) for line in (*PROJECT["project"]["dependencies"], *PROJECT["dependency-groups"]["dev"])]

    assert [str(each) for each in wanted if pins.get(canonicalize_name(each.name)) is None] == []
    assert [str(each) for each in wanted if not each.specifier.contains(pins[canonicalize_name(each.name)])] == []


def test_what_spark_needs_is_pinned_within_its_range() -> None:
    lines = [line for line in (ROOT / "requirements-spark.lock").read_text().splitlines() if not line.startswith("#")]
    pins = pinned() | {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}
    wanted = [Requirement(line) for line in PROJECT["project"]["optional-dependencies"]["spark"]]

    assert [str(each) for each in wanted if not each.specifier.contains(pins[canonicalize_name(each.name)])] == []


def test_the_locks_name_no_place_to_download_from() -> None:
    assert re.findall(r"https?://\S+", (ROOT / "requirements.lock").read_text()) == []
    assert re.findall(r"--(?:extra-)?index-url|--find-links", (ROOT / "requirements.lock").read_text()) == []


def test_the_rust_version_that_setup_asks_for_is_the_workspace_s() -> None:
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]

    assert re.fullmatch(r"\d+\.\d+", workspace["rust-version"])
    assert (ROOT / "Cargo.toml").read_text().count("\nrust-version") == 1, "tools/check_machine.sh reads that line"
