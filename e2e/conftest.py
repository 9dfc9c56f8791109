"""Fixtures of the scenarios: a cluster with the images on it, and the installed charts.

One line per scenario shows its time. They run in the order of the files; all share one Kubernetes and one broker, whose
message history is checked last.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster import Provider, provider
from e2e.kubectl import Kubectl, until
from e2e.manifests import load_pod, load_script, queue

ROOT = Path(__file__).resolve().parents[1]
# It has whole file systems of nodes, after a run as well.
collect_ignore = ["harness"]
PROVIDER = os.environ.get("E2E_PROVIDER", "harness")


@pytest.fixture(scope="session")
def machine() -> Provider:
    return provider(PROVIDER)


@pytest.fixture(scope="session")
def kubectl(machine: Provider) -> Kubectl:
    """Start the cluster with the images of `make images`."""
    kubeconfig = machine.up(1)
    folder = os.environ.get("BIN") or (str(ROOT / "e2e/harness/bin") if PROVIDER == "harness" else None)
    images = Path(os.environ.get("E2E_IMAGES", ROOT / "dist/images"))
    for name in ("penstock", "penstock-operator"):
        machine.load(images / f"{name}.tar")
    return Kubectl(kubeconfig, Path(folder) if folder else None)


class Load:
    """The pod that keeps a history on the broker of the README."""

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl

    def start(self) -> None:
        self._kubectl.apply(load_script(), queue("history", deletionPolicy="Retain"))
        self._kubectl.wait_ready("queues.penstock.dev/history")
        self._kubectl.apply(load_pod("load", "history"))
        until(lambda: "started" in self._kubectl("logs", "load"), "the load runs")

    def verdict(self) -> dict[str, int]:
        self._kubectl("exec", "load", "--", "/bin/sh", "-c", "echo > /tmp/stop")
        self._kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/load", "--timeout=120s")
        found: dict[str, int] = json.loads(self._kubectl("logs", "load").strip().splitlines()[-1])
        self._kubectl("delete", "pod", "load", "--wait=false")
        return found


@pytest.fixture(scope="session")
def load(kubectl: Kubectl) -> Load:
    return Load(kubectl)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Print one line per scenario, with its time."""
    started = time.monotonic()
    before = item.session.testsfailed
    yield
    word = "FAIL" if item.session.testsfailed > before else "ok"
    says = item.name.removeprefix("test_").replace("_", " ")
    print(f"\n{word:4} {time.monotonic() - started:6.1f} s  {says}", flush=True)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print a failure when it happens: the scenarios after it may take long."""
    if report.failed:
        print(f"\n{report.longreprtext}", flush=True)
