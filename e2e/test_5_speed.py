"""Speed and size: most figures are printed, not checked, as machines differ.

Checked are writes per object, the operator's memory, and that thousands of objects are ready in minutes.
"""

import json
import re
import time

import pytest

from e2e.kubectl import Kubectl, until
from e2e.manifests import Manifest, ours, queue
from e2e.test_2_manifests import broker
from e2e.test_3_failures import OPERATOR, ready_count

MANY = 2_000
ONES = 20
MEMORY_MB_MAX = 200
# A goal, which is printed beside the figure: it depends on the machine.
READY_SECONDS_WANTED = 180
FIRST = "penstock_operator_first_reconcile_seconds"
READ = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8080/metrics').read().decode())"
SIZE = "print(open('/proc/1/status').read()); print(open('/proc/1/stat').read())"


def test_an_operator_that_starts_begins_soon(kubectl: Kubectl, capsys: pytest.CaptureFixture[str]) -> None:
    kubectl("delete", "pod", "--selector", OPERATOR, "--wait=true", "--timeout=60s")
    kubectl("rollout", "status", "deployment", "penstock-operator", "--timeout=180s")

    until(lambda: figure(kubectl, FIRST) > 0, "it has reconciled", 120)

    with capsys.disabled():
        print(f"\nfigure: operator's start to the end of its first reconcile: {figure(kubectl, FIRST):.1f} s")


def test_a_queue_is_declared_soon(kubectl: Kubectl, capsys: pytest.CaptureFixture[str]) -> None:
    times = []
    for number in range(ONES):
        kubectl.apply(queue(f"soon-{number}", deletionPolicy="Delete"))
        started = time.monotonic()
        kubectl.wait_ready(f"queues.penstock.dev/soon-{number}")
        times.append(time.monotonic() - started)

    with capsys.disabled():
        median, worst = sorted(times)[ONES // 2], sorted(times)[int(ONES * 0.95) - 1]
        print(f"\nfigure: queue applied to Ready: p50 {median:.2f} s, p95 {worst:.2f} s, kubectl's own time included")
    kubectl("delete", "queues.penstock.dev", *(f"soon-{number}" for number in range(ONES)))


@pytest.mark.parametrize("kind", ["User", "Queue"])
def test_two_thousand_objects_are_ready_with_less_than_three_writes_each(
    kubectl: Kubectl, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    before, worked = writes(kubectl, kind), cpu_seconds(kubectl)
    started = time.monotonic()

    for first in range(0, MANY, 500):
        some = [many(kind, number) for number in range(first, first + 500)]
        # kubectl limits itself to 50 requests a second; an apply on the server's side takes one and not two.
        kubectl(
            "apply", "--server-side", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": some})
        )
    applied = time.monotonic()
    until(lambda: ready_count(kubectl, "many-", resource(kind)) == MANY, "all are ready", 900)

    ready = time.monotonic()
    each, worked = (writes(kubectl, kind) - before) / MANY, cpu_seconds(kubectl) - worked
    size, idle = footprint(kubectl)
    with capsys.disabled():
        print(f"\nfigure: {MANY:,} {kind}s applied in {applied - started:.0f} s")
        print(f"figure: all of them Ready after {ready - started:.0f} s; at most {READY_SECONDS_WANTED} wanted")
        print(f"figure: the operator worked {worked:.0f} s of CPU for them, {worked / MANY * 1e3:.0f} ms each")
        print(f"figure: {each:.2f} writes an object; operator {size:.0f} MB, {idle:.1%} of a core when idle")
    assert each < 3
    assert size < MEMORY_MB_MAX


@pytest.mark.parametrize("kind", ["User", "Queue"])
def test_two_thousand_objects_go_again(kubectl: Kubectl, kind: str) -> None:
    # One request: kubectl by itself sends two for each of them.
    path = f"/apis/penstock.dev/v1alpha1/namespaces/default/{kind.lower()}s?labelSelector=scenario%3Dmany"
    # A busy API server ends a request after a minute, when some of them are deleted.
    until(lambda: kubectl("delete", "--raw", path), "the deletion of all is asked for", 600)

    def are_gone() -> bool:
        return not [each for each in kubectl.list(resource(kind)) if each["metadata"]["name"].startswith("many-")]

    until(are_gone, "all are gone", 600)
    assert "many-" not in broker(kubectl, kind.lower(), "list", "--output", "json")


def many(kind: str, number: int) -> Manifest:
    """Return one of many objects, which are deleted together by their label."""
    made = ours(kind, f"many-{number}", {"name": f"many-{number}", "deletionPolicy": "Delete"})
    made["metadata"]["labels"] = {"scenario": "many"}
    return made


def resource(kind: str) -> str:
    return f"{kind.lower()}s.penstock.dev"


def writes(kubectl: Kubectl, kind: str) -> float:
    """Return how many writes of a kind the operator has made since its start."""
    page = in_operator(kubectl, READ)
    line = rf'^penstock_operator_writes_total\{{kind="{kind}",verb="[^"]*"\}} ([0-9.e+]+)$'
    found = re.findall(line, page, re.MULTILINE)
    return sum(float(count) for count in found)


def figure(kubectl: Kubectl, name: str) -> float:
    """Return one of the operator's metrics without labels."""
    found = re.search(rf"^{name} ([0-9.e+]+)$", in_operator(kubectl, READ), re.MULTILINE)
    return float(found[1]) if found else 0.0


def cpu_seconds(kubectl: Kubectl) -> float:
    return ticks(in_operator(kubectl, SIZE)) / 100


def footprint(kubectl: Kubectl) -> tuple[float, float]:
    """Return resident megabytes, and the share of a core over ten seconds."""
    begin = in_operator(kubectl, SIZE)
    started = time.monotonic()
    time.sleep(10)
    end = in_operator(kubectl, SIZE)
    resident = re.search(r"VmRSS:\s+(\d+) kB", end)
    assert resident is not None
    return int(resident[1]) / 1_000, (ticks(end) - ticks(begin)) / 100 / (time.monotonic() - started)


def ticks(page: str) -> int:
    fields = page.strip().splitlines()[-1].rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def in_operator(kubectl: Kubectl, program: str) -> str:
    pod = kubectl("get", "pod", "--selector", OPERATOR, "--output", "jsonpath={.items[0].metadata.name}")
    return kubectl("exec", pod, "--", "python3", "-c", program)
