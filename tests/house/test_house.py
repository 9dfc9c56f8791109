"""Rules of size, naming and order that no other tool checks.

RATCHET names each exception with its size; it may shrink and go, never grow.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
RATCHET: dict[str, int] = {}

BANNED_WORDS = {"utils", "util", "helpers", "helper", "common", "base", "misc", "manager"}
SOURCES = ("broker", "proto", "tests", "tools", "bench", "examples", "fuzz", "e2e", "operator")
OUTSIDE = {"state", "bin", "images", "target", "__pycache__", "penstockv1", "node_modules"}


def sources(*suffixes: str) -> list[Path]:
    """Return hand-written files by suffix, without generated and built ones."""
    files = (
        path for name in SOURCES for path in (ROOT / name).rglob("*") if path.suffix in suffixes and path.is_file()
    )
    return sorted(path for path in files if not OUTSIDE & set(path.relative_to(ROOT).parts) and "_pb2" not in path.name)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def too_long(sizes: Iterator[tuple[str, int]], limit: int) -> list[str]:
    return [f"{name}: {lines} lines" for name, lines in sizes if lines > RATCHET.get(name, limit)]


def test_no_file_is_longer_than_600_lines() -> None:
    sizes = (
        (named(path), len(path.read_text().splitlines())) for path in sources(".py", ".rs", ".proto", ".sh", ".go")
    )

    assert too_long(sizes, FILE_LINES_MAX) == []


def test_no_function_is_longer_than_70_lines() -> None:
    assert too_long(function_sizes(), FUNCTION_LINES_MAX) == []


def function_sizes() -> Iterator[tuple[str, int]]:
    for path in sources(".py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{named(path)}:{node.name}", (node.end_lineno or node.lineno) - node.lineno + 1
    for path in sources(".rs"):
        for name, lines in rust_functions(path.read_text()):
            yield f"{named(path)}:{name}", lines


def rust_functions(text: str) -> Iterator[tuple[str, int]]:
    """Yield name and length of every function: rustfmt closes a body with a brace at the indentation of its `fn`."""
    lines = text.splitlines()
    for start, line in enumerate(lines):
        opening = re.match(r'( *)(?:pub(?:\([^)]*\))? )?(?:default |const |async |unsafe |extern "C" )*fn (\w+)', line)
        if opening is None or line.rstrip().endswith((";", "}")):
            continue
        closing = opening.group(1) + "}"
        end = next((number for number in range(start, len(lines)) if lines[number] == closing), start)
        yield opening.group(2), end - start + 1


def test_every_module_opens_by_saying_what_it_is_for() -> None:
    silent = [named(path) for path in sources(".py") if ast.get_docstring(ast.parse(path.read_text())) is None]
    silent += [named(path) for path in sources(".rs") if not path.read_text().lstrip().startswith("//")]
    silent += [named(path) for path in sources(".proto") if not path.read_text().startswith("//")]
    silent += [named(path) for path in sources(".sh") if not path.read_text().splitlines()[1].startswith("# ")]

    assert silent == []


def test_nothing_bears_a_name_that_says_nothing() -> None:
    found = {f"{named(path)}: {name}" for path, name in names() if BANNED_WORDS & set(words(name))}

    assert sorted(found) == []


def names() -> Iterator[tuple[Path, str]]:
    for path in sources(".py", ".rs", ".proto", ".sh", ".go"):
        yield from ((path, part) for part in path.relative_to(ROOT).with_suffix("").parts)
    for path in sources(".py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield path, node.name
    for path in sources(".rs"):
        for match in re.finditer(
            r"^ *(?:pub(?:\([^)]*\))? )?(?:fn|struct|enum|trait|mod|type) (\w+)", path.read_text(), re.MULTILINE
        ):
            yield path, match.group(1)


def words(name: str) -> list[str]:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("-", "_").split("_")


def test_the_folders_above_the_packages_are_no_packages() -> None:
    assert [name for name in ("broker", "operator", "tests") if (ROOT / name / "__init__.py").exists()] == []


def test_the_init_file_of_a_package_holds_no_code() -> None:
    inits = [
        path for path in sources(".py") if path.name == "__init__.py" and path != ROOT / "broker/penstock/__init__.py"
    ]

    assert [named(path) for path in inits if not has_no_code(ast.parse(path.read_text()))] == []


def has_no_code(module: ast.Module) -> bool:
    """Return whether a file has a docstring, imports and `__all__`, and nothing else."""
    return all(
        isinstance(node, ast.Import | ast.ImportFrom | ast.Expr)
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__")
        for node in module.body
    )


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])


@pytest.mark.parametrize("document", documents(), ids=named)
def test_a_document_names_only_what_is_there(document: Path) -> None:
    text = document.read_text()
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    commands = re.findall(r"(?:`|^\s*(?:\$ )?)make ([a-z][a-z0-9-]*)", text, re.MULTILINE)
    links = [
        link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link and not link.startswith("mailto:")
    ]

    assert [name for name in commands if name not in targets] == []
    assert [link for link in links if not (document.parent / link).exists()] == []
    assert re.findall(r"(?:/home|/root|/work|/Users)/\S*", text) == []


@pytest.mark.parametrize("document", documents(), ids=named)
def test_a_link_to_a_heading_finds_it(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", document.read_text())
    targets = [
        ((document.parent / file) if file else document, heading) for file, heading in links if "://" not in file
    ]

    assert [heading for file, heading in targets if heading not in anchors(file)] == []


def anchors(document: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_ratchet_names_only_what_is_still_too_long() -> None:
    sizes = dict(function_sizes()) | {named(path): len(path.read_text().splitlines()) for path in sources(".py", ".rs")}

    assert {name: sizes.get(name) for name in RATCHET} == RATCHET


def test_rust_functions_are_measured_from_signature_to_brace() -> None:
    method = "impl A {\n    pub async fn one(\n        a: u8,\n    ) {\n        {\n        }\n    }\n}\n"
    text = method + "fn two() {}\nfn three() {\n}\n"

    assert list(rust_functions(text)) == [("one", 6), ("three", 2)]
