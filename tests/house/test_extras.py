"""Each extra of pyproject.toml has what its commands import: they run where no other library is installed."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
START = """
from pathlib import Path
from penstock.cli.main import app
def run(*words): assert not app(words, standalone_mode=False)
"""
OF_ARCHIVES = """
import penstock.archive.reading, penstock.pipeline.archiving
from penstock.services.archives import Archives
run("pipeline", "init", "--archive", "archive.yaml")
run("pipeline", "validate", "archive.yaml")
Archives(Path("."))
"""
OF_PIPELINES = """
import penstock.pipeline.declared, penstock.pipeline.running, penstock.pipeline.schedule, pyspark_penstock
import pyspark.sql.connect.session
from penstock.spark.avro import parsed
parsed('"int"')
run("pipeline", "init", "one.yaml")
Path("two.yaml").write_text(Path("one.yaml").read_text() + "\\nschedule: '15 * * * *'\\n")
run("pipeline", "validate", "two.yaml")
"""
OF_EACH = {
    "": "import penstock.aio, penstock.node.process\nrun('import', 'lavinmq', '--help')",
    "archive": OF_ARCHIVES,
    "s3": "from penstock.cli.archive_places import place_of\nplace_of('s3://bucket/key')",
    "spark": OF_PIPELINES + OF_ARCHIVES,
    "delta,spark": OF_PIPELINES + "import penstock.pipeline.sinks, deltalake",
}


def test_every_extra_is_tried() -> None:
    assert {extra for extras in OF_EACH for extra in extras.split(",")} - {""} == set(PROJECT["optional-dependencies"])


@pytest.mark.slow
@pytest.mark.parametrize("extras", OF_EACH)
def test_what_an_extra_is_for_needs_its_requirements_only(extras: str, tmp_path: Path) -> None:
    lines = list(PROJECT["dependencies"])
    for extra in filter(None, extras.split(",")):
        lines += PROJECT["optional-dependencies"][extra]
    try:
        names = set(needed(lines))
    except PackageNotFoundError as error:
        # `make lint` runs before PySpark is installed; `make test-spark` runs this file again with it.
        pytest.skip(f"{error.name} is not installed")
    packages = tmp_path / "packages"
    link_packages(names, packages)

    code = f"import sys; sys.path.insert(0, {str(packages)!r})\n{START}{OF_EACH[extras]}"
    # -S leaves the environment's own packages out, and what is not linked is missing.
    command = [sys.executable, "-P", "-E", "-S", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def needed(lines: Iterable[str], extras: Iterable[str] = ("",)) -> Iterator[str]:
    """Yield the distributions that requirements ask for, and those that these ask for."""
    pending, seen = [(Requirement(line), tuple(extras)) for line in lines], set[tuple[str, str]]()
    while pending:
        wanted, of_extras = pending.pop()
        if wanted.marker is not None and not any(wanted.marker.evaluate({"extra": extra}) for extra in of_extras):
            continue
        name = canonicalize_name(wanted.name)
        key = (name, ",".join(sorted(wanted.extras)))
        if key in seen:
            continue
        seen.add(key)
        yield name
        found = distribution(name).requires or []
        pending += [(Requirement(line), ("", *wanted.extras)) for line in found]


def link_packages(names: Iterable[str], folder: Path) -> None:
    """Make a folder that has these distributions, and ours, on a path of modules."""
    folder.mkdir()
    for ours in ("penstock", "pyspark_penstock"):
        (folder / ours).symlink_to(ROOT / "broker" / ours)
    for name in names:
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            link = folder / top
            if not link.is_symlink():
                link.symlink_to(Path(str(found.locate_file(top))))
