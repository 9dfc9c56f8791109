"""Fixtures of all suites: hypothesis profiles, and a broker process on request."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

# PySpark forks to start its JVM, and gRPC's handlers of forks kill one child in four. It reads this at its import.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

import pytest
from hypothesis import settings

from support import Broker
from support.broker import shards_of_this_run

settings.register_profile("dev", deadline=None, max_examples=50)
settings.register_profile("ci", deadline=None, max_examples=200, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_report_header() -> str:
    count = shards_of_this_run()
    return f"shards of virtual hosts: {count} (VHOST_SHARDS={count} repeats that)"


@pytest.fixture
def small_disk() -> Iterator[Callable[..., Path]]:
    """Return a function that makes file systems of a few kilobytes in memory. Without root such tests are skipped."""
    with ExitStack() as mounted:

        def mount(path: Path, *, kilobytes: int) -> Path:
            path.mkdir()
            command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "penstock-test", str(path)]
            if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
                pytest.skip("this user may not mount a file system")
            mounted.callback(subprocess.run, ["umount", "--lazy", str(path)], check=True)
            return path

        yield mount


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all tests that leave it running; each uses its own virtual host or names."""
    folder = tmp_path_factory.mktemp("broker")
    settings = folder / "penstock.toml"
    settings.write_text('metrics_names = "all"\n')
    with Broker(folder / "data", "--config", str(settings)) as started:
        yield started
