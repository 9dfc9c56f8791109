"""Prints what pyproject.toml asks for, one requirement a line, as input for pip.

`runtime` is the broker with the extra `archive`, `all` adds the tools for tests and checks.
"""

import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).resolve().parent.parent / "pyproject.toml").read_text())

requirements = [*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"]["archive"]]
if sys.argv[1] == "all":
    requirements += [line for group in PROJECT["dependency-groups"].values() for line in group]
sys.stdout.write("\n".join(requirements) + "\n")
