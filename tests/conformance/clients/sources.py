"""The sources of clients, from registries by name and version, each with an environment of its own.

Everything lies below the folder that a run keeps; what is there is not fetched again.
"""

import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


@dataclass(frozen=True, slots=True)
class Sdist:
    """A source distribution of the Python index."""

    name: str
    version: str

    @property
    def folder(self) -> str:
        return f"{self.name.replace('-', '_')}-{self.version}"

    def fetch(self, target: Path) -> None:
        """Fetch it without its dependencies. Its build tools come along, as pip reads its metadata."""
        _call(
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", self.name),
            *("--dest", target, f"{self.name}=={self.version}"),
        )


@dataclass(frozen=True, slots=True)
class DebianSource:
    """The source of a Debian package, for a project whose distributions have no tests."""

    name: str
    version: str
    package: str
    suite: str

    @property
    def folder(self) -> str:
        return f"{self.name}-{self.version}"

    def fetch(self, target: Path) -> None:
        """Fetch the project's own archive with lists of our own, so that the machine's stay as they are."""
        lists = target / "apt"
        (lists / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        (lists / "sources.list").write_text(f"deb-src [signed-by={_KEYS}] {_debian_mirror()} {self.suite} main\n")
        settings = [
            f"-oDir::Etc::sourcelist={lists / 'sources.list'}",
            "-oDir::Etc::sourceparts=/dev/null",
            f"-oDir::State::lists={lists / 'lists'}",
            f"-oDir::Cache={lists}",
            "-oAPT::Sandbox::User=root",
        ]
        _call("apt-get", *settings, "--quiet=2", "update")
        _call("apt-get", *settings, "--quiet=2", "source", "--download-only", "--tar-only", self.package, folder=target)


Source = Sdist | DebianSource


def unpacked(source: Source, work: Path) -> Path:
    """Return the folder with a fresh copy of the source."""
    archives, sources = work / "archives", work / "sources"
    archives.mkdir(parents=True, exist_ok=True)
    if not _archives_of(source, archives):
        source.fetch(archives)
    with tarfile.open(_archives_of(source, archives)[0]) as archive:
        archive.extractall(sources, filter="data")
    return sources / source.folder


def environment(source: Source, folder: Path, packages: Sequence[str], work: Path) -> Path:
    """Return the Python of an environment that has the source and these packages."""
    return environment_of(work / f"venv-{source.folder}", (str(folder), *packages))


def environment_of(home: Path, packages: Sequence[str]) -> Path:
    """Return the Python of an environment in the folder `home` that has these packages."""
    python, made_of = home / "bin" / "python", home / "made_of"
    wanted = "\n".join(packages)
    if not made_of.exists() or made_of.read_text() != wanted:
        _call(sys.executable, "-m", "venv", "--clear", home)
        _call(python, "-m", "pip", "install", "--quiet", *packages)
        made_of.write_text(wanted)
    return python


def _debian_mirror() -> str:
    """Return where this machine gets Debian's packages."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian"]
    found = subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout.split()
    assert found, "the machine's lists name no place for Debian's packages; run apt-get update"
    return found[0]


def _archives_of(source: Source, archives: Path) -> list[Path]:
    found = [*archives.glob(f"{source.folder}.tar.gz"), *archives.glob(f"*{source.name}_{source.version}.orig.tar.gz")]
    return sorted(found)


def _call(*command: str | Path, folder: Path | None = None) -> None:
    subprocess.run([str(part) for part in command], cwd=folder, check=True, stdin=subprocess.DEVNULL)
