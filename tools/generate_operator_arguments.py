"""Writes the broker's table of arguments and policy keys as schemas of the operator's kinds.

A test compares the file with the table, so an argument that the broker gains is one that the kinds know. Arguments
without a schema, which the broker checks alone or which have no effect, are left out: the kinds pass them on.
"""

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock.metadata.argument_table import ARGUMENTS, Argument, Target
from penstock.model.records import ExchangeKind

ROOT = Path(__file__).resolve().parents[1]
MODULE = ROOT / "operator" / "penstock_operator" / "api" / "broker_arguments.py"
HEAD = '''"""Arguments of queues and exchanges and keys of policies, with schemas of their values.

They are those of the broker's table. Others are passed on to the broker, which refuses unsupported ones.
"""
# Generated from penstock/metadata/argument_table.py by `make crds`; edit that file instead.

from typing import Any, Final, Literal, TypeAlias

'''
# Arguments that are fields of a Queue or of a Stream.
FIELDS_OF_QUEUE: Final = frozenset({"x-queue-type"})
FIELDS_OF_STREAM: Final = frozenset({*FIELDS_OF_QUEUE, "x-max-age", "x-max-length-bytes", "x-dedicated"})
QUEUES: Final = frozenset({Target.CLASSIC, Target.QUORUM, Target.STREAM})
EXCHANGES: Final = frozenset({Target.EXCHANGE, Target.DELAYED, Target.HASHING})
# A super stream is an exchange that the kind Stream declares.
OTHER_EXCHANGES: Final = frozenset({ExchangeKind.SUPER_STREAM})


def module() -> str:
    """Return the module of the operator, formatted."""
    types = [kind.value for kind in ExchangeKind if kind not in OTHER_EXCHANGES]
    tables = {
        "QUEUE": _arguments(QUEUES, FIELDS_OF_QUEUE),
        "STREAM": _arguments(frozenset({Target.STREAM}), FIELDS_OF_STREAM),
        "EXCHANGE": _arguments(EXCHANGES, frozenset()),
        "POLICY": {row.policy_key: _schema(row) for row in _rows() if row.policy_key},
    }
    source = HEAD + f"ExchangeType: TypeAlias = Literal[{', '.join(map(json.dumps, types))}]\n"
    for name, table in tables.items():
        rows = ", ".join(f"{json.dumps(key)}: {schema}" for key, schema in table.items())
        source += f"{name}: Final[dict[str, dict[str, Any]]] = {{{rows}}}\n"
    command = [sys.executable, "-m", "ruff", "--quiet", "format", "--stdin-filename", str(MODULE), "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout


def _rows() -> Iterator[Argument]:
    """Return the rows that a schema can check."""
    yield from (row for row in ARGUMENTS if row.type is not None and row.type.schema)


def _arguments(targets: frozenset[Target], fields: frozenset[str]) -> dict[str, str]:
    return {row.name: _schema(row) for row in _rows() if row.applies_to & targets and row.name not in fields}


def _schema(row: Argument) -> str:
    """Return the source of the schema of a row's values, with its description as a sentence without links."""
    assert row.type is not None
    about = re.sub(r" \(\[[^)]*\)\)", "", row.about).replace("`", "'")
    lines = textwrap.wrap(f"{about[:1].upper()}{about[1:]}.", 90, drop_whitespace=False)
    rest = "".join(f", {json.dumps(key)}: {value!r}" for key, value in row.type.schema.items())
    return f'{{"description": {" ".join(map(json.dumps, lines))}{rest}}}'


if __name__ == "__main__":
    MODULE.write_text(module())
