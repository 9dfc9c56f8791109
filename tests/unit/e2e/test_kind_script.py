"""`make kind` by the commands that it runs: stand-ins for kind, helm and kubectl record their calls."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
STAND_IN = '#!/bin/sh\necho "$(basename "$0") $*" >> "$RECORD"\n'


def run(tmp_path: Path, *, without: str = "") -> tuple["subprocess.CompletedProcess[str]", list[str]]:
    """Return its output, and the recorded calls."""
    folder, record = tmp_path / "bin", tmp_path / "record"
    folder.mkdir()
    for name in {"kind", "helm", "kubectl"} - {without}:
        (folder / name).write_text(STAND_IN)
        (folder / name).chmod(0o755)
    path = f"{folder}:{os.defpath}:{Path(sys.executable).parent}"
    environment = {**os.environ, "PATH": path, "RECORD": str(record), "KIND_KUBECONFIG": str(tmp_path / "kubeconfig")}
    done = subprocess.run(
        [str(ROOT / "tools" / "kind.sh")], env=environment, capture_output=True, text=True, check=False
    )
    return done, record.read_text().splitlines() if record.exists() else []


def test_a_cluster_is_made_loaded_and_both_charts_installed_and_the_next_step_said(tmp_path: Path) -> None:
    done, called = run(tmp_path)

    assert done.returncode == 0, done.stderr
    assert called == [
        f"kind create cluster --name penstock --kubeconfig {tmp_path}/kubeconfig --wait 120s",
        "kind load image-archive dist/images/penstock.tar --name penstock",
        "kind load image-archive dist/images/penstock-operator.tar --name penstock",
        "helm upgrade --install penstock-operator charts/penstock-operator --wait --timeout 120s",
        "helm upgrade --install mq charts/penstock",
        "kubectl wait --for=condition=Ready psc/mq --timeout=180s",
    ]
    assert f"export KUBECONFIG={tmp_path}/kubeconfig" in done.stdout
    assert "kubectl apply -f examples/kubernetes/orders.yaml" in done.stdout


def test_a_program_that_is_missing_is_named(tmp_path: Path) -> None:
    done, called = run(tmp_path, without="helm")

    assert done.returncode == 1
    assert "helm is not on the PATH" in done.stderr
    assert called == []
