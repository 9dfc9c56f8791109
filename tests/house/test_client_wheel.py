"""The client's wheel: it has everything that it imports, and nothing of the broker."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"__init__.py", "aio.py", "py.typed", "client", "spark", "v1"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(["tools/build_client.sh", str(folder)], cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def test_it_is_pure_and_holds_client_and_connector(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()

    assert wheel.name.endswith("-py3-none-any.whl")
    assert not [name for name in names if name.endswith(".so")]
    assert {name.split("/")[1] for name in names if name.startswith("penstock/")} == PACKAGES
    assert "pyspark_penstock/__init__.py" in names


def test_every_python_file_of_its_packages_is_in_it(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    folders = [ROOT / "broker/penstock" / package for package in ("client", "spark", "v1")]
    there = [path for folder in folders for path in folder.glob("*.py")]

    assert [path.name for path in there if path.relative_to(ROOT / "broker").as_posix() not in names] == []


def test_it_is_imported_without_the_broker(wheel: Path) -> None:
    code = (
        "import penstock, penstock.aio, penstock.spark.wire, penstock.spark.decoding, penstock.spark.groups\n"
        "penstock.connect\n"
        "own = [module.__file__ for name, module in sys.modules.items() if name.startswith('penstock')]\n"
        f"assert all({str(wheel)!r} in file for file in own)"
    )
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(wheel)!r})\n{code}"]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
