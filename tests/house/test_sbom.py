"""The bill of materials: complete, valid by CycloneDX's schema, and without traces of the builder."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tools import make_sbom

CARRIED = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.5",
    "metadata": {"component": {"type": "library", "bom-ref": "path+file:///home/somebody/py#0.1.0", "name": "py"}},
    "components": [
        {
            "type": "library",
            "bom-ref": "path+file:///home/somebody/log#0.1.0",
            "name": "log",
            "version": "0.1.0",
            "purl": "pkg:cargo/log@0.1.0?download_url=file://../log",
            "licenses": [{"expression": "MIT OR Apache-2.0"}],
        },
        {"type": "library", "bom-ref": "bytes", "name": "bytes", "version": "1.0.0", "purl": "pkg:cargo/bytes@1.0.0"},
    ],
    "dependencies": [
        {"ref": "path+file:///home/somebody/py#0.1.0", "dependsOn": ["path+file:///home/somebody/log#0.1.0"]},
        {"ref": "path+file:///home/somebody/log#0.1.0", "dependsOn": ["bytes"]},
    ],
}


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    install(tmp_path, "penstock", "0.1.0", "License-Expression: Apache-2.0", "Requires-Dist: some_thing>=1", CARRIED)
    install(
        tmp_path, "Some.Thing", "1.2", "Classifier: License :: OSI Approved :: MIT License", "Requires-Dist: absent"
    )
    return tmp_path


def install(folder: Path, name: str, version: str, *lines: Any) -> None:
    info = folder / f"{name}-{version}.dist-info"
    (info / "sboms").mkdir(parents=True)
    fields = [line for line in lines if isinstance(line, str)]
    (info / "METADATA").write_text(
        "\n".join(["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *fields])
    )
    for carried in lines[len(fields) :]:
        (info / "sboms" / "crates.cyclonedx.json").write_text(json.dumps(carried))


def problem(document: dict[str, Any]) -> object:
    return JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(document))


def test_packages_and_what_they_carry_are_listed_with_their_licences(packages: Path) -> None:
    bill = make_sbom.bill_of(packages, "penstock")

    assert problem(bill) is None
    assert bill["metadata"]["component"]["purl"] == "pkg:pypi/penstock@0.1.0"
    assert {component["purl"]: component.get("licenses") for component in bill["components"]} == {
        "pkg:cargo/bytes@1.0.0": None,
        "pkg:cargo/log@0.1.0": [{"expression": "MIT OR Apache-2.0"}],
        "pkg:pypi/some-thing@1.2": [{"license": {"name": "MIT License"}}],
    }
    assert {edge["ref"]: edge["dependsOn"] for edge in bill["dependencies"]} == {
        "pkg:cargo/bytes@1.0.0": [],
        "pkg:cargo/log@0.1.0": ["pkg:cargo/bytes@1.0.0"],
        "pkg:pypi/penstock@0.1.0": ["pkg:cargo/log@0.1.0", "pkg:pypi/some-thing@1.2"],
        "pkg:pypi/some-thing@1.2": [],
    }


def test_it_says_nothing_of_the_machine_and_is_the_same_each_time(packages: Path) -> None:
    first, second = (make_sbom.bill_of(packages, "penstock") for _ in range(2))

    assert first == second
    assert "somebody" not in json.dumps(first)


def test_everything_that_is_installed_here_makes_a_valid_one() -> None:
    """Use real metadata, with all spellings of licences."""
    folder = next(Path(path) for path in sys.path if list(Path(path).glob("pytest-*.dist-info")))

    bill = make_sbom.bill_of(folder, "pytest")

    assert problem(bill) is None
    assert len(bill["components"]) > 50


def test_a_package_that_is_not_there_is_told(packages: Path) -> None:
    with pytest.raises(SystemExit, match="elsewhere"):
        make_sbom.bill_of(packages, "elsewhere")
