"""Writes the client's verbs for threads from those for asyncio: `generate_client.py [FOLDER]`, by default in place.

`aio_NAME.py` is the source, `NAME.py` what is generated: the same without `async`, `await` and the `Async` of names.
"""

import re
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "broker" / "penstock" / "client"
NAMES = ("admin", "stage", "stream_verbs", "topology")
CHANGES = (
    (r" The form for threads is generated\.", ""),
    (r"\basync def\b", "def"),
    (r"\bawait ", ""),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\baio_", ""),
)


def for_threads(source: str, name: str) -> str:
    """Return the form for threads of a module."""
    for pattern, replacement in CHANGES:
        source = re.sub(pattern, replacement, source)
    first, rest = source.split("\n", 1)
    source = f"{first}\n# Generated from aio_{name}.py by `make verbs`; edit that file instead.\n{rest}"
    command = [sys.executable, "-m", "ruff", "--quiet"]
    for step in (["check", "--select", "I", "--fix"], ["format"]):
        done = subprocess.run(
            [*command, *step, "--stdin-filename", str(SOURCES / f"{name}.py"), "-"],
            input=source,
            capture_output=True,
            text=True,
            check=True,
        )
        source = done.stdout
    return source


def main(folder: Path) -> None:
    """Write every generated module to a folder."""
    for name in NAMES:
        (folder / f"{name}.py").write_text(for_threads((SOURCES / f"aio_{name}.py").read_text(), name))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCES)
