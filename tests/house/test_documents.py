"""Check that the things that documents name exist.

These are paths, all targets of a `make`, packages, commands of the command line and their options. `test_house.py`
checks links.

Prose is read, and so are blocks of commands. A name that this cannot tell apart from an example is left alone.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from penstock.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("charts/*/*.md"), *ROOT.glob("examples/*/*.md")]
)
PLACEHOLDERS = {"CRATE", "NAME", "WORD"}
COMMAND = typer.main.get_command(app)
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z0-9-]+):.*## ", MAKEFILE, re.MULTILINE))


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tracked() -> set[str]:
    """Return the paths of tracked files and of their folders."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = listed.stdout.splitlines()
    return {*files, *(str(parent) for file in files for parent in Path(file).parents)}


KNOWN = tracked()


def missing_paths(text: str) -> Iterator[str]:
    """Return paths in backquotes that begin with a folder of the repository and do not exist."""
    folders = {path.split("/")[0] for path in KNOWN if "/" in path}
    for name in re.findall(r"`([\w./-]+/[\w./-]*)`", text):
        parts = name.rstrip("/").split("/")
        if parts[0] in folders and not PLACEHOLDERS & set(parts) and "/".join(parts) not in KNOWN:
            yield name


def missing_targets(text: str) -> Iterator[str]:
    quoted = re.findall(r"`make ([a-z][a-z0-9 -]*)", text)
    for words in [*quoted, *re.findall(r"^make ([a-z][a-z0-9 -]*)", text, re.MULTILINE)]:
        yield from (word for word in words.split() if word not in TARGETS)


def wrong_commands(text: str) -> Iterator[str]:
    """Return commands of `penstock` in code with a name or an option that the command line does not have."""
    text = text.replace("\\\n", " ")
    for line in re.findall(r"(?:^|[`$ |/])penstock ([a-z][^`\n|>]*)", text, re.MULTILINE):
        words = re.sub(r"'[^']*'|\"[^\"]*\"", "X", line).split()
        command: Any = COMMAND
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        if command is COMMAND:
            continue  # prose about penstock, or the name of a chart
        if hasattr(command, "commands") and words and re.fullmatch(r"[a-z][a-z-]*", words[0]):
            yield line
        options = {name for item in command.params for name in [*item.opts, *item.secondary_opts]} | {"-h", "--help"}
        for word in words:
            option = re.match(r"--?[a-zA-Z][a-z-]*", word)
            if option and option.group() not in options:
                yield f"{option.group()} in: {line}"


def code(path: Path) -> str:
    """Return what is code in a document, a line for each part of it."""
    text = path.read_text()
    blocks = re.findall(r"^```(?:sh|bash|console)?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return "\n".join([*blocks, *re.findall(r"^    (.*)$", prose, re.MULTILINE), *re.findall(r"`[^`]+`", prose)])


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_paths_and_targets_of_a_document_exist(document: Path) -> None:
    text = document.read_text()

    assert [*missing_paths(text), *missing_targets(text)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_commands_of_a_document_exist_with_their_options(document: Path) -> None:
    assert list(wrong_commands(code(document))) == []


def test_the_layout_names_every_package_crate_and_suite() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    layout = text[text.index("## Layout") : text.index("## Requirements for a change")]
    words = set(re.findall(r"[a-z_0-9]+", layout))
    folders = ("broker/penstock", "broker/rust", "operator/penstock_operator", "tests", "")
    names = {path.removeprefix(f"{folder}/").split("/")[0] for folder in folders for path in children(folder)}

    assert {name for name in names if not name.startswith(".")} - words == set()


def children(folder: str) -> list[str]:
    """Return the folders directly in a folder of the repository."""
    depth = len(Path(folder).parts) + 1
    inside = [path for path in KNOWN if path.startswith(f"{folder}/") or not folder]
    return [path for path in inside if len(Path(path).parts) == depth and (ROOT / path).is_dir()]


def test_the_checks_that_decide_are_all_named() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    checks = text[text.index("## Checks") : text.index("## Tests of storage")]
    steps = set(re.findall(r"^step (\S+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE))

    assert {step for step in steps - {"setup", "lint", "test"} if f"`make {step}`" not in checks} == set()


def test_a_wrong_name_is_found() -> None:
    assert list(missing_paths("`broker/penstock/missing/`")) == ["broker/penstock/missing/"]
    assert list(missing_targets("run `make coffee test`")) == ["coffee"]
    assert list(wrong_commands("`penstock queue list --colour`")) == ["--colour in: queue list --colour"]
    assert list(wrong_commands("    penstock queue fill")) == ["queue fill"]


def test_a_superseded_decision_and_its_successor_name_each_other() -> None:
    pages = {page.name: page.read_text() for page in (ROOT / "docs" / "decisions").glob("*.md")}
    older = {
        (name, of)
        for name, text in pages.items()
        for of in re.findall(r"^\*Supersedes .*\]\(([^)]+)\)", text, re.MULTILINE)
    }
    newer = {
        (by, name)
        for name, text in pages.items()
        for by in re.findall(r"^\*.*superseded by \[\d+\]\(([^)]+)\)", text, re.MULTILINE)
    }

    assert older == newer != set()
