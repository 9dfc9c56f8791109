"""Check that tables in documents have exactly the rows that the code has: methods, errors, options, keys, attacks.

A row of a table begins with its names in backquotes. Defaults of settings in sentences are checked, too.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

import penstock
from hostile import connections, contents
from penstock.client.aio_admin import AsyncAdmin
from penstock.node.config import Settings
from penstock.pipeline import archive_document, document
from penstock.spark.errors import OptionError
from penstock.spark.options import parse_read_options, parse_write_options
from penstock.spark.queue_options import parse_queue_options

ROOT = Path(__file__).resolve().parents[2]
OF_SPARK_ITSELF = {"checkpointLocation", "queryName"}
PARTS_OF_NAMES = {"list_", "set_", "delete_", "permission", "topic_permission"}
"""Methods with these are written as one row."""


def section(name: str, heading: str) -> str:
    """Return a section of a document, without those below it that have headings of the same depth."""
    text = (ROOT / name).read_text()
    depth = heading.split(" ", maxsplit=1)[0]
    return re.split(rf"^{depth} ", text.partition(f"{heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def named(cells: Iterable[str]) -> set[str]:
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def first_cells(text: str) -> list[str]:
    return re.findall(r"^\| ([^|]*) \|", text, re.MULTILINE)


def options_of(parse: Callable[[Mapping[str, str]], Any]) -> set[str]:
    """Return the options that a parser names when it refuses one."""
    with pytest.raises(OptionError) as refused:
        parse({"no such option": ""})
    return {name.strip() for name in str(refused.value).partition("valid are: ")[2].split(",")}


def test_the_table_of_administration_has_every_method() -> None:
    table = "\n".join(re.findall(r"^\|.*", section("docs/clients.md", "## Administration"), re.MULTILINE))
    rows = named(table.splitlines()) - {"connection.admin"}
    methods = {name for name in vars(AsyncAdmin) if not name.startswith("_")}
    of_permissions = {name for name in methods if name.removesuffix("s").endswith("permission")}

    assert rows - PARTS_OF_NAMES == methods - of_permissions
    assert of_permissions == {
        f"{verb}_{kind}{'s' if verb == 'list' else ''}"
        for verb in ("list", "set", "delete")
        for kind in ("permission", "topic_permission")
    }


def test_the_table_of_errors_has_every_error() -> None:
    errors = {name for name in penstock.__all__ if name.endswith("Error")}
    bases = {"PenstockError", "RefusedError"}

    assert named(first_cells(section("docs/clients.md", "## Errors and reconnects"))) == errors - bases


def test_the_tables_of_options_for_spark_have_every_option() -> None:
    reading = named(first_cells(section("docs/spark.md", "## Options for reading")))
    writing = named(first_cells(section("docs/spark.md", "## Options for writing")))
    of_queues = named(first_cells(section("docs/spark.md", "## Queues")))

    assert reading == options_of(parse_read_options) - {"path"}
    assert writing == options_of(parse_write_options) - {"path"} - OF_SPARK_ITSELF
    assert of_queues == options_of(lambda options: parse_queue_options({"queue": "q", "owner": "o", **options}))


def test_the_tables_of_pipelines_have_every_key() -> None:
    keys = section("docs/spark.md", "## Pipelines").partition("| key |")[2].partition("\n\n")[0]
    sinks = section("docs/spark.md", "## Pipelines").partition("| sink |")[2].partition("\n\n")[0]
    archives = first_cells(section("docs/archive.md", "## Quick start"))

    assert named(first_cells(keys)) | {"interval"} == set(document.KEYS)
    assert "`interval`" in keys
    assert named(first_cells(sinks)) == set(document.SINK_FORMATS)
    assert named(archives) == set(archive_document.ARCHIVE_KEYS)


def test_the_number_of_hostile_cases_is_that_of_the_tests() -> None:
    text = section("CONTRIBUTING.md", "## Tests with hostile clients")

    assert f"in {len(connections.CASES) + len(contents.CASES)} ways" in text


@pytest.mark.parametrize(
    ("name", "sentence", "setting"),
    [
        ("docs/streams.md", r"`producer_memory_days` \((\d+)\)", "producer_memory_days"),
        ("docs/streams.md", r"`producers_per_user_max` names \(([\d,]+)\)", "producers_per_user_max"),
        ("CHANGELOG.md", r"`producer_memory_days` \((\d+)\)", "producer_memory_days"),
    ],
)
def test_a_default_in_a_sentence_is_that_of_the_setting(name: str, sentence: str, setting: str) -> None:
    found = re.search(sentence, " ".join((ROOT / name).read_text().split()))

    assert found is not None
    assert float(found.group(1).replace(",", "")) == Settings.model_fields[setting].default
