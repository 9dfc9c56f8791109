"""Tables of the fields of all kinds for docs/kubernetes.md, made from the CRDs.

`python -m penstock_operator.api.document FILE` writes them. A test compares the page with the CRDs.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock_operator.api.crds import crd
from penstock_operator.api.fields import PRESERVE, VALIDATIONS
from penstock_operator.api.kinds import KINDS, Kind

BEGIN, END = "<!-- fields: begin -->\n", "<!-- fields: end -->"
Schema = dict[str, Any]


def fields() -> str:
    """Return one table per kind."""
    return "\n".join(_table(kind) for kind in KINDS.values())


def _table(kind: Kind) -> str:
    spec = crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    rows = [f"| `{name}` | {what} | {default} | {says} |" for name, what, default, says in _rows(spec, "")]
    head = f"### {kind.name} (`{kind.short}`)\n\n{spec['description']}\n"
    return "\n".join([head, "| field | type | default | description |", "|---|---|---|---|", *rows, ""])


def _rows(schema: Schema, path: str) -> Iterator[tuple[str, str, str, str]]:
    for name, node in schema.get("properties", {}).items():
        where = f"{path}{name}"
        is_required = name in schema.get("required", [])
        inside = node.get("items", node)
        if "properties" in inside:
            if node is not inside or PRESERVE in node:
                yield where, "list" if node is not inside else "map", "", _says(node, is_required)
            yield from _rows(inside, f"{where}[]." if node is not inside else f"{where}.")
        else:
            yield where, _type(node), _default(node), _says(node, is_required)


def _type(node: Schema) -> str:
    if "enum" in node:
        return ", ".join(f"`{each}`" for each in node["enum"])
    if "additionalProperties" in node:
        return "map"
    if node.get("type") == "array":
        return f"list of {_type(node['items'])}"
    return str(node.get("type", "any"))


def _default(node: Schema) -> str:
    return f"`{json.dumps(node['default'])}`" if "default" in node else ""


def _says(node: Schema, is_required: bool) -> str:
    bounds = ""
    if "minimum" in node and "maximum" in node:
        bounds = f"From {node['minimum']} to {node['maximum']}."
    cannot_change = any(each["rule"] == "self == oldSelf" for each in node.get(VALIDATIONS, []))
    parts = ("**Required.**" if is_required else "", node.get("description", ""), bounds)
    return " ".join(part for part in (*parts, "Cannot be changed." if cannot_change else "") if part)


def with_fields(page: str) -> str:
    """Return the page with current tables."""
    return re.sub(f"{BEGIN}.*?{END}", lambda _: f"{BEGIN}{fields()}{END}", page, flags=re.DOTALL)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(with_fields(target.read_text()))
