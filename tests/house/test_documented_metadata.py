"""Check that the formats of a cluster's metadata in docs/format.md have the classes, fields and numbers of the code."""

import json
import re
from dataclasses import fields
from enum import IntEnum
from pathlib import Path
from typing import Any, get_args

from penstock.cluster.calls import CALL_BYTES_MAX, Kind
from penstock.cluster.meta.changes import MetaChange, Record
from penstock.cluster.meta.checkpoint import Applied, checkpoint_of, write_applied
from penstock.cluster.meta.files import CHECKPOINT_RECORDS
from penstock.cluster.meta.leader_link import Method
from penstock.cluster.meta.state import MetaState

FORMAT = (Path(__file__).resolve().parents[2] / "docs" / "format.md").read_text()
METADATA = FORMAT.partition("## Metadata of a cluster\n")[2].partition("\n# Log\n")[0]
CALLS = FORMAT.partition("A message between brokers about the shard `meta`")[2]


def rows(text: str, heading: str) -> dict[str, str]:
    """Return the rows of the tables whose first column has that heading: the second cells by the names in the first."""
    tables = re.findall(rf"^\| {heading} \|[^\n]*\n\|[-|]*\n((?:\|[^\n]*\n)*)", text + "\n", re.MULTILINE)
    found = [re.fullmatch(r"\| `(\w+)` \| (.*) \|", line) for table in tables for line in table.splitlines()]
    return {row[1]: row[2] for row in found if row is not None}


def named(cell: str) -> list[str]:
    """Return the names in a cell but those of files."""
    return [name for name in re.findall(r"`([^`]+)`", cell) if "." not in name]


def documented_classes() -> dict[str, list[str]]:
    return {name: named(cell) for name, cell in rows(METADATA, "class").items()}


def test_every_change_and_its_fields_are_documented() -> None:
    classes: list[Any] = [Record, *get_args(MetaChange)]
    documented = {name: found for name, found in documented_classes().items() if not name.startswith("_")}

    assert documented == {kind.__name__: [field.name for field in fields(kind)] for kind in classes}


def test_the_parts_of_a_checkpoint_are_documented() -> None:
    found = json.loads(checkpoint_of(MetaState()))
    documented = documented_classes()

    assert documented[found["class"]] == [name for name in found if name != "class"]
    assert documented["_Session"] == ["session", "answered_below", "answers"]
    assert documented["_Answer"] == ["number", "answer"]
    assert f"a new one is written after {CHECKPOINT_RECORDS:,} records" in METADATA


def test_the_keys_of_meta_json_are_documented(tmp_path: Path) -> None:
    write_applied(tmp_path / "meta.json", Applied(1, begins_anew=True))

    assert list(json.loads((tmp_path / "meta.json").read_text())) == list(rows(METADATA, "key"))


def test_the_kinds_and_methods_of_calls_are_documented() -> None:
    def numbered(names: type[IntEnum]) -> list[tuple[str, str]]:
        return [(str(each.value), each.name) for each in names]

    assert re.findall(r"^\| (\d+) \| `(\w+)` \|", CALLS, re.MULTILINE) == [*numbered(Kind), *numbered(Method)]
    assert CALL_BYTES_MAX == 1 << 20
    assert "at most 1 MiB" in CALLS
