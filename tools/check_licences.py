"""Checks the licences of all Python packages in requirements.lock and all crates in Cargo.lock.

It uses the packages installed in .venv and cargo's metadata, without the network. A package with unclear metadata is
named in KNOWN, with what its files say. Run it with the Python of .venv: `python tools/check_licences.py`.
"""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
# Each permits distribution of the broker under Apache-2.0, with these packages beside it.
TAKEN = (
    *("Apache", "MIT", "BSD", "ISC", "PSF", "Python Software Foundation", "0BSD", "Unlicense", "Zlib", "HPND"),
    *("MPL-2.0", "Mozilla Public License 2.0"),  # file by file: none of our code is in such a file
)
REFUSED = re.compile(r"\b(?:A?GPL|LGPL|SSPL|BUSL|Commons Clause|Proprietary)|GNU (?:Affero|General|Lesser)")
KNOWN: dict[str, str] = {}


def main() -> int:
    packages, known = list(pinned()), crates()
    problems = [problem for name, version in packages if (problem := problem_of(name, version))]
    allowed = frozenset(tomllib.loads((ROOT / "deny.toml").read_text())["licenses"]["allow"])
    problems += [f"crate {name} is under {said!r}" for name, said in known.items() if not is_taken(said, allowed)]
    for problem in problems:
        sys.stderr.write(problem + "\n")
    sys.stdout.write(f"licences: {len(packages)} packages, {len(known)} crates, {len(problems)} problems\n")
    return 1 if problems else 0


def crates() -> dict[str, str]:
    """Return licence expressions by name and version."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--offline"]
    found = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    return {f"{crate['name']} {crate['version']}": crate["license"] or "" for crate in found["packages"]}


def is_taken(expression: str, allowed: frozenset[str]) -> bool:
    """Return whether every required part offers an accepted licence."""
    plain = re.sub(r"[()]", " ", expression.replace("/", " OR "))
    parts = (part.split(" OR ") for part in plain.split(" AND "))
    return bool(expression) and all(any(each.strip() in allowed for each in part) for part in parts)


def pinned() -> Iterator[tuple[str, str]]:
    for line in LOCK.read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, version = line.partition("==")
            yield name, version


def problem_of(name: str, version: str) -> str:
    """Return the problem with one package, or empty."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return f"{name} is in requirements.lock and not installed; run make setup"
    if found.version != version:
        return f"{name} is installed as {found.version}, and requirements.lock says {version}; run make setup"
    said = KNOWN.get(name) or " | ".join(licences(found))
    if not said:
        return f"{name} {version} names no licence; read it and add it to KNOWN in tools/check_licences.py"
    if REFUSED.search(said) and not _has_choice(said):
        return f"{name} {version} is under {said}, which this project does not take"
    if not any(each.lower() in said.lower() for each in TAKEN):
        return f"{name} {version} is under {said[:80]!r}, which nobody here has looked at"
    return ""


def licences(found: Distribution) -> list[str]:
    """Return the metadata's expression, classifiers, or first line of the text."""
    if "License-Expression" in found.metadata:
        return [found.metadata["License-Expression"]]
    classifiers = [line for line in found.metadata.get_all("Classifier") or [] if line.startswith("License ::")]
    text = found.metadata["License"].strip().splitlines() if "License" in found.metadata else []
    return [line.rpartition(" :: ")[2] for line in classifiers] or text[:1]


def _has_choice(said: str) -> bool:
    """Return whether `A OR B` leaves the choice to us."""
    return " OR " in said and any(each in part for part in said.split(" OR ") for each in TAKEN)


if __name__ == "__main__":
    sys.exit(main())
