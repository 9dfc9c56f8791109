"""The examples of AMQP, built with the tools of their languages, as commands that run them.

Packages come from the languages' registries, in the versions that the examples name. Builds lie below the folder that a
run keeps, so that nothing is written beside the examples.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from conformance.clients.runs import ROOT
from conformance.clients.sources import environment_of

EXAMPLES = ROOT / "examples" / "amqp"


@dataclass(frozen=True, slots=True)
class Example:
    """Commands, one after another, in a folder."""

    folder: Path
    commands: list[list[str]]

    def run(self, url: str, seconds_max: float = 120) -> list[str]:
        """Run the commands with a broker's URL, and return the lines that they print."""
        lines: list[str] = []
        for command in self.commands:
            done = subprocess.run(
                command,
                cwd=self.folder,
                env=variables(url),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=seconds_max,
                check=False,
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
            lines += done.stdout.splitlines()
        return lines


def variables(url: str) -> dict[str, str]:
    """Return the variables of an example: the machine's, and where the broker is."""
    return {**os.environ, "AMQP_URL": url, "PYTHONDONTWRITEBYTECODE": "1"}


def python(work: Path) -> Example:
    command = str(python_of("python", work))
    return Example(EXAMPLES / "python", [[command, "publisher.py"], [command, "consumer.py"]])


def python_of(example: str, work: Path) -> Path:
    """Return the Python that has what an example requires."""
    required = (EXAMPLES / example / "requirements.txt").read_text().split()
    return environment_of(work / f"venv-example-{example}", required)


def node(work: Path) -> Example:
    return Example(with_packages(EXAMPLES / "node", work / "example-node"), [["node", "orders.js"]])


def with_packages(source: Path, target: Path) -> Path:
    """Copy a folder of Node, and install the packages of its lock file there."""
    lock = (source / "package-lock.json").read_text()
    installed = target / "installed"
    shutil.copytree(source, target, dirs_exist_ok=True)
    if not installed.exists() or installed.read_text() != lock:
        built(target, "npm", "ci", "--no-audit", "--no-fund", "--silent")
        installed.write_text(lock)
    return target


def go(work: Path) -> Example:
    program = work / "example-go"
    built(EXAMPLES / "go", "go", "build", "-o", str(program), ".")
    return Example(work, [[str(program)]])


def java(work: Path) -> Example:
    jars = jars_of(EXAMPLES / "java", work / "example-java")
    return Example(jars, [["java", "-cp", "classes:jars/*", "example.Orders"]])


def jars_of(source: Path, target: Path) -> Path:
    """Compile a folder of Maven's into `classes` of the target, with the packages that it needs in `jars`."""
    shutil.copytree(source, target / "source", dirs_exist_ok=True)
    folders = f"-DoutputDirectory={target / 'jars'}"
    built(target / "source", "mvn", "-B", "-q", "compile", "dependency:copy-dependencies", folders)
    shutil.copytree(target / "source" / "target" / "classes", target / "classes", dirs_exist_ok=True)
    return target


def built(folder: Path, *command: str) -> None:
    """Run a command that builds, and show what it prints if it fails."""
    assert shutil.which(command[0]) is not None, f"{command[0]} is needed to build {folder}"
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
