"""Checks that the files of a Rust crate do not use each other in a circle, tests excluded.

A file uses another when a path in it leads there: from `crate`, `super` or `self`, or from the name of a module of its
own. Declaring a module (`mod name;`) uses nothing. Names that `lib.rs` exports stand for the file that they come from.
"""

import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CRATES = ROOT / "broker" / "rust"
# Some 25 of its files use each other in circles around segments.
LEFT_OUT = {"log"}

TESTS = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[[^\n]*\]\s*)*mod \w+ \{.*?^\}", re.DOTALL | re.MULTILINE)
# Comments, texts, declarations of modules and how far a name is visible.
NO_USES = re.compile(r"""//[^\n]*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])'|\bmod \w+;|\bpub\(\w+\)""")
# A path, and the brace that opens its group.
PATH = re.compile(r"(?<![\w:])(\w+(?:::\w+)*)(::\{)?")

Module = tuple[str, ...]


def modules(source: Path) -> dict[Module, Path]:
    """Return the files of a crate by the module that each is; lib.rs is the empty one."""
    named = {path.relative_to(source).with_suffix("").parts: path for path in source.rglob("*.rs")}
    return {parts[:-1] if parts[-1] in ("lib", "mod") else parts: path for parts, path in named.items()}


def paths(text: str) -> Iterator[Module]:
    """Return the paths in some code; those of a group with what is before the brace."""
    position = 0
    while found := PATH.search(text, position):
        parts = tuple(found[1].split("::"))
        position = found.end()
        if found[2] is None:
            yield parts
            continue
        end = closing(text, position)
        yield from (parts + inner for inner in paths(text[position:end]))
        position = end


def closing(text: str, position: int) -> int:
    """Return where the group that was opened before a position is closed."""
    depth = 1
    for brace in re.finditer(r"[{}]", text[position:]):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return position + brace.start()
    return len(text)


def code(path: Path) -> str:
    return NO_USES.sub("", TESTS.sub("", path.read_text()))


def absolute(path: Module, at: Module, known: Mapping[Module, Path]) -> Module | None:
    """Return a path from the root of the crate; None when it leads out of the crate."""
    first, rest = path[0], path[1:]
    if first == "crate":
        return rest
    if first == "self":
        return (*at, *rest)
    if first == "super":
        return absolute(rest, at[:-1], known) if rest[:1] == ("super",) else (*at[:-1], *rest)
    return (*at, *path) if rest and (*at, first) in known else None


def file_of(path: Module, known: Mapping[Module, Path]) -> Module:
    return next(path[:end] for end in range(len(path), -1, -1) if path[:end] in known)


def graph(source: Path) -> dict[str, set[str]]:
    """Return for each file but lib.rs the files that it uses."""
    known = modules(source)
    led = {
        at: {to for path in paths(code(file)) if (to := absolute(path, at, known)) is not None}
        for at, file in known.items()
    }
    exported = {path[-1]: path for path in led.get((), set()) if path not in known}
    files: dict[str, set[str]] = {}
    for at, tos in led.items():
        through = (exported.get(to[0], to) if to and file_of(to, known) == () else to for to in tos)
        used = {file_of(to, known) for to in through} - {at, ()}
        files[str(known[at].relative_to(source))] = {str(known[to].relative_to(source)) for to in used}
    return {name: used for name, used in files.items() if name != "lib.rs"}


def circle(files: Mapping[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(files).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("crate", sorted({path.parent.name for path in CRATES.glob("*/src")} - LEFT_OUT))
def test_no_files_of_a_crate_use_each_other_in_a_circle(crate: str) -> None:
    assert circle(graph(CRATES / crate / "src")) == []


def made(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.rs"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


def test_a_circle_is_found_in_groups_and_paths(tmp_path: Path) -> None:
    one = "use std::{fmt, sync::Arc};\nuse crate::{error::Error, two::{self, Two}};\n"
    source = made(
        tmp_path, lib="mod one;\nmod two;\nmod error;\n", one=one, two="fn f(x: crate::one::One) {}\n", error=""
    )

    assert graph(source) == {"one.rs": {"error.rs", "two.rs"}, "two.rs": {"one.rs"}, "error.rs": set()}
    assert set(circle(graph(source))) == {"one.rs", "two.rs"}


def test_a_circle_with_a_module_of_its_own_is_found(tmp_path: Path) -> None:
    parent = "mod child;\npub(super) use child::{Child, other};\npub struct Parent;\n"
    source = made(tmp_path, lib="mod parent;\n", parent=parent, parent__child="use super::Parent;\n")

    assert set(circle(graph(source))) == {"parent.rs", "parent/child.rs"}


def test_a_name_that_the_crate_exports_stands_for_its_file(tmp_path: Path) -> None:
    source = made(
        tmp_path, lib="mod one;\nmod two;\npub use one::One;\n", one="use crate::two::f;\n", two="use crate::One;\n"
    )

    assert set(circle(graph(source))) == {"one.rs", "two.rs"}


def test_tests_comments_and_declarations_use_nothing(tmp_path: Path) -> None:
    tests = "#[cfg(test)]\n#[allow(clippy::unwrap_used)]\nmod tests {\n    use crate::two::Two;\n}\n"
    source = made(
        tmp_path,
        lib="mod one;\nmod two;\n",
        one=f"// crate::two::Two\nmod part;\n{tests}",
        two="use crate::one::One;\n",
    )

    assert graph(source) == {"one.rs": set(), "two.rs": {"one.rs"}}


@pytest.mark.parametrize("crate", sorted(LEFT_OUT))
def test_a_crate_without_a_circle_is_not_left_out(crate: str) -> None:
    assert circle(graph(CRATES / crate / "src")) != []
