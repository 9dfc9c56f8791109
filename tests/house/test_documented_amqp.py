"""Hold docs/amqp.md to the code: methods, arguments, policy keys, properties and headers are all there, and no others.

The names are those of the table of methods, of the table of arguments, and of the texts in the sources that read and
write messages.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from penstock.client.properties import Properties
from penstock.metadata.argument_table import ARGUMENTS, Argument, Target
from penstock.model.records import ExchangeKind

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "amqp.md").read_text()
RUST = ROOT / "broker" / "rust"
OF_CONSUMERS = RUST / "serve" / "src" / "amqp" / "consume_arguments.rs"
EXCHANGES = {Target.EXCHANGE, Target.DELAYED, Target.HASHING, Target.HISTORY, Target.PARTITIONED}
TESTS = re.compile(r"^#\[cfg\(test\)\]", re.MULTILINE)
# The delay over gRPC, which has no place in a message over AMQP.
OF_GRPC = {"delay_ms"}


def rows(heading: str) -> list[list[str]]:
    """Return the cells of each row of the table in a section."""
    section = re.split(r"^## ", PAGE.partition(f"## {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def named(cells: Iterable[str]) -> set[str]:
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def column(heading: str, number: int) -> set[str]:
    return named(row[number] for row in rows(heading))


def sources(*folders: str) -> str:
    """Return the Rust of these folders without its tests."""
    files = [path for folder in folders for path in (RUST / folder).rglob("*.rs") if path.name != "tests.rs"]
    return "\n".join(TESTS.split(path.read_text())[0] for path in sorted(files))


def supported(targets: set[Target]) -> list[Argument]:
    return [row for row in ARGUMENTS if row.type is not None and row.applies_to & targets]


def test_every_method_is_named() -> None:
    table = (RUST / "wire" / "src" / "amqp" / "method.rs").read_text()
    methods = set(re.findall(r"^    \d+ \d+ \"([a-z_.]+)\"", table, re.MULTILINE))
    requests = {name.replace("_", "-") for name in methods if not name.endswith(("_ok", "get_empty"))}

    assert len(methods) >= 60
    assert column("Methods", 0) == requests


def test_every_argument_is_in_the_table_of_what_has_it() -> None:
    queues = supported({Target.CLASSIC, Target.QUORUM, Target.STREAM})
    exchanges = supported(EXCHANGES)

    assert column("Arguments of queues", 0) == {row.name for row in queues}
    assert column("Arguments of exchanges", 0) == {row.name for row in exchanges} - {row.name for row in queues}
    assert column("Arguments of bindings", 0) == {row.name for row in supported({Target.BINDING})}


def test_every_policy_key_is_beside_its_argument() -> None:
    keys = {row.policy_key: row.name for row in ARGUMENTS if row.type is not None and row.policy_key}
    found = [row for heading in ("queues", "exchanges") for row in rows(f"Arguments of {heading}")]
    pairs = {key: named(row[:1]) for row in found for key in named(row[1:2])}

    assert set(pairs) == set(keys)
    assert [key for key, name in keys.items() if name not in pairs[key]] == []


def test_every_argument_of_a_consumer_is_named() -> None:
    text = OF_CONSUMERS.read_text()
    read = dict(re.findall(r'^const (\w+): &str = "(x-[a-z-]+)";', text, re.MULTILINE))
    asked = set(re.findall(r"arguments\.get\((\w+)\)", text))

    assert column("Arguments of consumers", 0) == {read[name] for name in asked}


def test_every_type_of_an_exchange_is_in_the_table_of_types() -> None:
    table = (ROOT / "docs" / "exchanges.md").read_text().partition("| type |")[2].partition("\n\n")[0]

    assert named(row.split("|")[1] for row in table.splitlines()[2:]) == {kind.value for kind in ExchangeKind}


def test_every_property_is_named() -> None:
    fields = set(Properties.__dataclass_fields__) - OF_GRPC

    assert column("Properties of messages", 0) == fields


def test_every_header_that_the_sources_name_is_named() -> None:
    """A text in the sources that looks like a header is a header, or else an argument or a type of an exchange."""
    text = sources("wire/src", "queue/src", "engine/src", "serve/src")
    texts = set(re.findall(r'b?"(x-[a-z-]+|B?CC)"', text))
    arguments = {row.name for row in ARGUMENTS}
    types = set(
        re.findall(r"`(x-[a-z-]+)`", (ROOT / "docs" / "exchanges.md").read_text().partition("\n\nThe types")[0])
    )
    headers = column("Headers", 0)

    assert texts - arguments - types - column("Arguments of consumers", 0) - headers == set()
    assert headers - texts == set()
