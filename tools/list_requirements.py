"""Prints what pyproject.toml asks for, runtime and dev group, one requirement a line: input for pip."""

import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).resolve().parent.parent / "pyproject.toml").read_text())

requirements = [*PROJECT["project"]["dependencies"], *PROJECT["dependency-groups"]["dev"]]
sys.stdout.write("\n".join(requirements) + "\n")
