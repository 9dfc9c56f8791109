"""The example in Go, built and run: a client generated from the contract by another language's tools."""

import shutil
import subprocess
from pathlib import Path

import pytest

from support import Broker

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "go"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    go = shutil.which("go")
    assert go is not None, "Go is needed to build examples/go"
    target = tmp_path_factory.mktemp("go") / "go-client"
    subprocess.run([go, "build", "-o", str(target), "."], cwd=EXAMPLE, check=True)
    return target


def test_the_go_example_publishes_and_consumes(broker: Broker, client: Path) -> None:
    done = subprocess.run([client, "-address", broker.address], capture_output=True, text=True, check=False, timeout=60)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["confirmed 1000", "consumed 1000 in order", "left behind 0"]


def test_the_go_example_says_that_its_password_is_wrong(broker: Broker, client: Path) -> None:
    done = subprocess.run(
        [client, "-address", broker.address, "-password", "wrong"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 1
    assert "Unauthenticated" in done.stderr
