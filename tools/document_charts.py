"""Write the README of each chart from its values.yaml: every value with its default and the comment above it.

`python tools/document_charts.py` writes them; a test compares the two.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CHARTS = Path(__file__).resolve().parents[1] / "charts"
LINE = re.compile(r"^(?P<indent> *)(?P<key>[A-Za-z]\w*):(?P<value>.*)$")


def readme(chart: Path) -> str:
    """Return the page of one chart."""
    about: dict[str, Any] = yaml.safe_load((chart / "Chart.yaml").read_text())
    text = (chart / "values.yaml").read_text()
    rows = [f"| `{path}` | `{default}` | {says} |" for path, default, says in values(text)]
    return "\n".join(
        [
            f"# {about['name']}",
            "",
            f"{about['description']}. [Kubernetes](../../docs/kubernetes.md) describes its installation and use.",
            "",
            "Unknown values are refused. `python tools/document_charts.py` writes this page.",
            "",
            "| value | default | description |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def values(text: str) -> Iterator[tuple[str, str, str]]:
    """Return path, default and comment of every value; the comment of a group applies to its first value."""
    stack: list[tuple[int, str]] = []
    comment: list[str] = []
    for number, line in enumerate(lines := text.splitlines()):
        found = LINE.match(line)
        if found is None:
            is_text = line.strip().startswith("# ") and not line.strip().startswith("#  ")  # the rest are examples
            comment = [*comment, line.strip().removeprefix("# ")] if is_text else []
            continue
        indent = len(found["indent"])
        stack = [each for each in stack if each[0] < indent]
        stack.append((indent, found["key"]))
        if found["value"].strip() or not _has_inside(lines, number, indent):
            yield ".".join(key for _, key in stack), found["value"].strip(), " ".join(comment)
            comment = []


def _has_inside(lines: list[str], number: int, indent: int) -> bool:
    following = next((line for line in lines[number + 1 :] if line.strip() and not line.strip().startswith("#")), "")
    return len(following) - len(following.lstrip()) > indent


if __name__ == "__main__":
    for folder in sorted(path.parent for path in CHARTS.glob("*/Chart.yaml")):
        (folder / "README.md").write_text(readme(folder))
