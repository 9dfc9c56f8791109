"""Checks that the files of the broker and the operator do not import each other in a circle, types included."""

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (ROOT / "broker" / "penstock", ROOT / "operator" / "penstock_operator")


def modules(package: Path) -> dict[str, Path]:
    files = (path for path in package.rglob("*.py") if "_pb2" not in path.name)
    named = {".".join(path.relative_to(package.parent).with_suffix("").parts): path for path in files}
    return {name.removesuffix(".__init__"): path for name, path in named.items()}


def imports(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """Return the modules that a file imports, at its top, in functions and for types."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for each in node.names:
                name = f"{node.module}.{each.name}"
                yield from (found for found in [name if name in known else node.module] if found in known)


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_no_files_import_each_other_in_a_circle(package: Path) -> None:
    known = modules(package)

    assert circle({name: set(imports(path, known)) - {name} for name, path in known.items()}) == []


def test_a_circle_of_types_is_found(tmp_path: Path) -> None:
    package = tmp_path / "made"
    package.mkdir()
    (package / "one.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from made import two\n")
    (package / "two.py").write_text("import made.one\n")
    known = modules(package)

    assert set(circle({name: set(imports(path, known)) for name, path in known.items()})) == {"made.one", "made.two"}
