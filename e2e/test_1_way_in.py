"""First steps on an empty Kubernetes: the README's commands exactly as written, and messages from outside."""

import os
import re
import subprocess
import sys
from pathlib import Path

from e2e.conftest import Load
from e2e.kubectl import Kubectl, until

ROOT = Path(__file__).resolve().parents[1]
SECTION = re.search(r"<!-- kubernetes: begin -->\n```\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
EXAMPLE = """
import sys, penstock
with penstock.connect(sys.argv[1], timeout=10) as broker:
    broker.declare_queue("outside", durable=True)
    broker.publish(b"hello", routing_key="outside")
    message = broker.get("outside")
    assert message is not None and message.body == b"hello"
    message.ack()
    broker.delete_queue("outside")
"""


def test_the_commands_of_the_readme_install_and_send_a_thousand_orders(kubectl: Kubectl) -> None:
    assert SECTION is not None
    commands = [line.split("#")[0].strip() for line in SECTION[1].splitlines() if line.strip()]

    printed = ""
    for command in commands:
        done = subprocess.run(
            command,
            shell=True,
            cwd=ROOT,
            env=kubectl.environment(),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        printed += done.stdout

    assert "1,000 orders published, confirmed and consumed" in printed


def test_the_operator_is_given_all_namespaces_for_what_follows(kubectl: Kubectl) -> None:
    chart = str(ROOT / "charts" / "penstock-operator")
    kubectl.helm("upgrade", "penstock-operator", chart, "--set", "watchAllNamespaces=true", "--wait")
    kubectl("rollout", "status", "deployment", "penstock-operator", "--timeout=120s")


def test_a_glance_tells_how_things_are(kubectl: Kubectl) -> None:
    shown = kubectl("get", "psc,queues.penstock.dev")

    assert re.search(r"cluster.penstock.dev/mq +1 +True +Running +Serving", shown)
    assert re.search(r"queue.penstock.dev/orders +mq +shop +orders +True +Synced", shown)


def test_messages_go_through_from_outside(kubectl: Kubectl) -> None:
    command = ["kubectl", "port-forward", "service/mq", ":5680"]
    with subprocess.Popen(command, env=kubectl.environment(), stdout=subprocess.PIPE, text=True) as forward:
        try:
            assert forward.stdout is not None
            port = forward.stdout.readline().split(":")[1].split()[0]
            uri = f"penstock://admin:{kubectl.password()}@127.0.0.1:{port}/"
            environment = {**os.environ, "PYTHONPATH": str(ROOT / "broker")}
            subprocess.run([sys.executable, "-c", EXAMPLE, uri], check=True, timeout=60, env=environment)
        finally:
            forward.terminate()


def test_the_load_starts_whose_history_is_checked_at_the_end(kubectl: Kubectl, load: Load) -> None:
    load.start()

    until(lambda: (kubectl.get("pod", "load") or {}).get("status", {}).get("phase") == "Running", "the load runs")
