"""Runs tools/audit.sh with a cargo that finds nothing wrong and has or lacks the list of known vulnerabilities."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("is_fetched", "offline", "status", "checked"),
    [(True, "", 0, True), (False, "", 1, False), (False, "1", 0, False), (True, "1", 0, True)],
)
def test_known_vulnerabilities_are_left_out_only_when_that_is_asked_for(
    tmp_path: Path, is_fetched: bool, offline: str, status: int, checked: bool
) -> None:
    fetches = "true" if is_fetched else "false"
    commands = {"cargo": f'echo "$*" >> {tmp_path}/asked; case "$*" in *fetch*) {fetches};; esac', "cargo-deny": "true"}
    for name, content in commands.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{content}\n")
        (tmp_path / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "AUDIT_OFFLINE": offline}

    done = subprocess.run(
        [ROOT / "tools" / "audit.sh"], env=env, capture_output=True, check=False, text=True, timeout=60
    )

    assert done.returncode == status, done.stderr
    assert ("advisories" in (tmp_path / "asked").read_text()) is checked
    assert ("known vulnerabilities" in done.stdout + done.stderr) is not checked
