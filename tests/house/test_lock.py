"""Checks requirements.lock against pyproject.toml: pins are in the ranges, and it has only names and versions."""

import itertools
import re
import tomllib
from importlib.metadata import distributions
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
    lines = [*PROJECT["project"]["dependencies"], *itertools.chain(*PROJECT["dependency-groups"].values())]
    wanted = [Requirement(line) for line in lines]

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


def test_every_crate_comes_from_the_registry_by_its_checksum() -> None:
    """Crates without a source are the workspace's own."""
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    own = {path.parent.name for path in (ROOT / "broker" / "rust").glob("*/Cargo.toml")}

    assert {crate["name"] for crate in lock if "source" not in crate} == {f"penstock-{name}" for name in own}
    foreign = [crate for crate in lock if "source" in crate]
    assert [crate["name"] for crate in foreign if not crate["source"].startswith("registry+")] == []
    assert len({crate["source"] for crate in foreign}) == 1
    assert [crate["name"] for crate in foreign if len(crate.get("checksum", "")) != 64] == []


def test_no_manifest_takes_any_version_of_a_crate() -> None:
    for manifest in (ROOT / "Cargo.toml", *(ROOT / "broker" / "rust").glob("*/Cargo.toml")):
        assert re.findall(r"=\s*\"[^\"]*\*[^\"]*\"", manifest.read_text()) == [], manifest


def test_nothing_is_installed_that_no_lock_names() -> None:
    lines = (ROOT / "requirements-spark.lock").read_text().splitlines()
    named = set(pinned()) | {canonicalize_name(line.split("==")[0]) for line in lines if "==" in line}
    installed = {canonicalize_name(found.metadata["Name"]) for found in distributions()}

    assert installed - named - {"pip", "setuptools", "penstock"} == set()


def test_the_rust_version_that_setup_asks_for_is_the_workspace_s() -> None:
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]

    assert re.fullmatch(r"\d+\.\d+", workspace["rust-version"])
    assert (ROOT / "Cargo.toml").read_text().count("\nrust-version") == 1, "tools/check_machine.sh reads that line"
