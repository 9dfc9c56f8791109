"""Check errors, help texts, documents and docstrings for forms that make them hard to read.

A form is a regular expression over one sentence. Code in documents is not prose, so it is left out.
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
import yaml

from penstock.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
FIRST_DECISION = 30
"""Decisions before this one are a record of their time and keep their words."""

RENUMBERED = {37, 38}
"""Old decisions that got these numbers later."""

PEOPLE = r"\b(?:nobody|somebody|anybody|everybody)\b"
FORMS = {
    "opens with a bare pronoun": r"^(?:What|Who|Whoever|Whose|Whom|Those|Nobody|Somebody)\b(?!.*\?$)",
    "names no one in particular": PEOPLE,
    "those that": r"\bthose (?:that|who|which)\b",
    "such a one": r"\bsuch a one\b",
    "is none": r"(?<!there )\b(?:is|are|was|were) none\b",
    "gives": r"\bgives\b",
    "metaphor": r"\b(?:rooms?|houses?(?! (?:tests?|rules?))|doors?|visitors?|strangers?|guests|a guest|life)\b"
    r"|\bmend(?:s|ed|ing)?\b"
    r"|slips? of the pen|behind \w+(?: \w+)?'s? backs?|behind (?:its|their|the) backs?",
    "corruption": r"(?<!\.)\bdamag(?:e|es|ed|ing)\b",
    "lies in": r"\blies in\b",
    "made up": r"\b(?:was|were|is|are) made up\b",
}
"""Each form by its name. Say who does what instead, in the words of the field."""

DOCSTRING_FORMS = {
    name: form if name != "gives" else r"\bgives\b(?! up)"
    for name, form in FORMS.items()
    if name in ("opens with a bare pronoun", "names no one in particular", "those that", "such a one", "gives")
}
ERROR_FORMS = {"is no thing": r"(?<!there )\b(?:is|are|was|were) no\b(?! longer)"}
HEADING_FORMS = {"asks instead of naming": r"^(?:What|Who|Whose)\b"}


_RUST_LITERAL = r'"(?:[^"\\]|\\.)*"'
RUST = re.compile(
    rf"//[^\n]*|\b(?:debug_)?assert\w*!\((?:[^\";]|{_RUST_LITERAL})*?\)\s*;|\.expect\({_RUST_LITERAL}\)"
    rf"|\b(?:doc|reason) = {_RUST_LITERAL}|'\\?\"'|\"(?P<literal>(?:[^\"\\]|\\.)*)\"",
    re.DOTALL,
)
"""A string of Rust code; comments, assertions and reasons of attributes match without a literal."""


class Sentence(NamedTuple):
    place: str
    text: str


def hits(sentences: Iterable[Sentence], forms: dict[str, str]) -> list[str]:
    patterns = {name: re.compile(form, re.IGNORECASE) for name, form in forms.items()}
    return [
        f"{sentence.place}: {name}: {sentence.text}"
        for sentence in sentences
        for name, pattern in patterns.items()
        if pattern.search(sentence.text)
    ]


def split(text: str) -> list[str]:
    """Return the sentences of a paragraph, without markup and code."""
    text = re.sub(r"`[^`]*`|\"guest\"|'guest'", "X", " ".join(text.split()))
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("**", "")
    return [part.strip(" *-|#>") for part in re.split(r"(?<=[.!?])\s+", text) if part.strip(" *-|#>")]


def of_paragraphs(name: str, lines: Iterable[tuple[int, str]]) -> Iterator[Sentence]:
    """Join consecutive lines and return their sentences, each at the line where its paragraph begins."""
    start, gathered = 0, ""
    for number, line in [*lines, (0, "")]:
        if gathered and (not line.strip() or re.match(r"\s*([*|#-]|\d+\.) ?", line)):
            yield from (Sentence(f"{name}:{start}", text) for text in split(gathered))
            gathered = ""
        if line.lstrip().startswith("|"):
            yield from (Sentence(f"{name}:{number}", text) for cell in line.split("|") for text in split(cell))
        elif line.strip():
            start = start if gathered else number
            gathered += f" {line}"


def documents() -> list[Path]:
    decisions = [
        path
        for path in (ROOT / "docs" / "decisions").glob("*.md")
        if FIRST_DECISION <= int(path.name.split("-")[0]) not in RENUMBERED
    ]
    return sorted(
        [
            *ROOT.glob("*.md"),
            *(ROOT / "docs").glob("*.md"),
            *decisions,
            *(ROOT / "charts").rglob("README.md"),
            *(ROOT / "charts").rglob("NOTES.txt"),
            *(ROOT / "examples").rglob("*.md"),
        ]
    )


def prose(path: Path) -> list[tuple[int, str]]:
    """Return the numbered lines of a document that are no code and no drawing."""
    found, fence = [], False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        is_fence = line.lstrip().startswith("```")
        fence ^= is_fence
        is_code = fence or is_fence or line.startswith(("    ", "<!--", "{{"))
        found.append((number, "" if is_code else line))
    return found


def comments(*suffixes: str) -> Iterator[Sentence]:
    """Return the sentences in comments of the contract and of the charts' values."""
    marks = {".proto": "//", ".yaml": "#"}
    for path in sorted([*(ROOT / "proto").rglob("*.proto"), *(ROOT / "charts").glob("*/values.yaml")]):
        if path.suffix in suffixes:
            mark = marks[path.suffix]
            lines = [
                (number, line.split(mark, 1)[1] if mark in line else "")
                for number, line in enumerate(path.read_text().splitlines(), 1)
            ]
            yield from of_paragraphs(named(path), lines)


def descriptions() -> Iterator[Sentence]:
    """Return the sentences of the kinds' fields and of the dashboards."""
    for path in sorted((ROOT / "charts" / "penstock-operator" / "templates" / "crds").glob("*.yaml")):
        text = re.sub(r"^\{\{.*\}\}$", "", path.read_text(), flags=re.MULTILINE)
        for document in yaml.safe_load_all(text):
            yield from texts(named(path), document, {"description"})
    for path in sorted((ROOT / "charts" / "penstock" / "dashboards").glob("*.json")):
        yield from texts(named(path), json.loads(path.read_text()), {"description", "title"})


def texts(name: str, node: object, keys: set[str], above: str = "") -> Iterator[Sentence]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key in keys and isinstance(value, str):
                yield from (Sentence(f"{name}:{above}.{key}", text) for text in split(value))
            else:
                yield from texts(name, value, keys, f"{above}.{key}")
    elif isinstance(node, list):
        for value in node:
            yield from texts(name, value, keys, above)


def strings() -> Iterator[Sentence]:
    """Return the sentences in strings of the broker, the client and the operator: errors, log events, metrics' help."""
    for folder in ("broker/penstock", "operator/penstock_operator"):
        for path in sorted(path for path in (ROOT / folder).rglob("*.py") if "_pb2" not in path.name):
            module = ast.parse(path.read_text())
            skipped = {id(node) for node in not_shown(module)}
            for node in ast.walk(module):
                if isinstance(node, ast.expr) and id(node) not in skipped:
                    for literal in literals(node):
                        if literal.count(" ") >= 2:
                            yield from (Sentence(f"{named(path)}:{node.lineno}", text) for text in split(literal))


def docstrings() -> Iterator[Sentence]:
    """Return the sentences of the docstrings of the broker and its clients."""
    for path in sorted((ROOT / "broker" / "penstock").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())) if "_pb2" not in path.name else ():
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                place = f"{named(path)}:{getattr(node, 'lineno', 1)}"
                paragraphs = (ast.get_docstring(node) or "").split("\n\n")
                yield from (Sentence(place, text) for paragraph in paragraphs for text in split(paragraph))


def rust_strings() -> Iterator[Sentence]:
    """Return the sentences in strings of the crates: errors, refusals, lines of the log; not of assertions."""
    for path in sorted((ROOT / "broker" / "rust").glob("*/src/**/*.rs")):
        yield from rust_sentences(named(path), path.read_text())


def rust_sentences(name: str, source: str) -> Iterator[Sentence]:
    for found in RUST.finditer(source.partition("#[cfg(test)]\nmod ")[0]):
        literal = re.sub(r"\\\n\s*", "", found["literal"] or "")
        if literal.count(" ") >= 2:
            line = source.count("\n", 0, found.start()) + 1
            yield from (Sentence(f"{name}:{line}", text) for text in split(re.sub(r"\{[^{}]*\}", "X", literal)))


def not_shown(module: ast.Module) -> Iterator[ast.AST]:
    """Return the docstrings of a module, and the parts of its f-strings, which are read as one."""
    for node in ast.walk(module):
        if isinstance(node, ast.Expr):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield from node.values


def literals(node: ast.AST) -> Iterator[str]:
    """Return the text of a string; what an f-string inserts reads as X."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)


def helps() -> Iterator[Sentence]:
    """Return the sentences of the command line's help, of every command, option and argument."""

    def walk(command: Any, name: str) -> Iterator[Sentence]:
        yield from (Sentence(name, text) for text in split(command.help or ""))
        for parameter in command.params:
            text = getattr(parameter, "help", None) or ""
            yield from (Sentence(f"{name} {parameter.name}", part) for part in split(text))
        for child, nested in getattr(command, "commands", {}).items():
            yield from walk(nested, f"{name} {child}")

    yield from walk(typer.main.get_command(app), "penstock")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("document", documents(), ids=named)
def test_a_document_has_no_banned_form(document: Path) -> None:
    assert hits(of_paragraphs(named(document), prose(document)), FORMS) == []


@pytest.mark.parametrize("document", documents(), ids=named)
def test_a_heading_names_the_task_or_the_thing(document: Path) -> None:
    headings = [
        Sentence(f"{named(document)}:{number}", line.lstrip("# "))
        for number, line in prose(document)
        if line.startswith("#")
    ]

    assert hits(headings, HEADING_FORMS) == []


def test_comments_of_the_contract_have_no_banned_form() -> None:
    assert hits(comments(".proto"), FORMS) == []


def test_comments_of_chart_values_have_no_banned_form() -> None:
    assert hits(comments(".yaml"), FORMS) == []


def test_descriptions_of_kinds_and_dashboards_have_no_banned_form() -> None:
    assert hits(descriptions(), FORMS) == []


def test_errors_and_other_strings_have_no_banned_form() -> None:
    assert hits(strings(), FORMS | ERROR_FORMS) == []


def test_errors_and_other_strings_of_the_crates_have_no_banned_form() -> None:
    assert hits(rust_strings(), FORMS | ERROR_FORMS) == []


def test_a_banned_form_in_a_string_of_rust_is_found_and_one_in_an_assertion_is_not() -> None:
    source = """// "It gives the queue."
    #[error("{0} lies in \\
             another log")]
    assert!(is_free, "it gives the queue");
    #[cfg(test)]
mod tests { const TEXT: &str = "it gives the queue"; }"""

    assert [sentence.text for sentence in rust_sentences("a.rs", source)] == ["X lies in another log"]


def test_docstrings_have_no_banned_form() -> None:
    assert hits(docstrings(), DOCSTRING_FORMS) == []


def test_help_texts_have_no_banned_form() -> None:
    assert hits(helps(), FORMS) == []


@pytest.mark.parametrize(
    "text",
    [
        "What is kept goes when it is settled.",
        "The segment stays, for nobody reads it.",
        "Delete those that are old.",
        "The file is none of ours.",
        "It gives the queue.",
        "The password was made up.",
        "It holds a door with a lock.",
    ],
)
def test_a_banned_form_is_found(text: str) -> None:
    assert hits([Sentence("here:1", part) for part in split(text)], FORMS) != []


def test_a_plain_sentence_and_code_are_not_found() -> None:
    text = "The user `guest` is there. What does a confirm promise? See `those that`. [Kinds](x.md#what) of queues."

    assert hits([Sentence("here:1", part) for part in split(text)], FORMS) == []


def test_sentences_are_found_in_every_place() -> None:
    assert len(list(strings())) > 1_000
    assert len(list(docstrings())) > 2_000
    assert len(list(rust_strings())) > 250
    assert len(list(helps())) > 100
    assert len(list(descriptions())) > 100
    assert len(list(comments(".proto"))) > 200
