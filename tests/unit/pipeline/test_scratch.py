"""Temporary folders: one of a killed process is deleted by the next run, one of a living process is not."""

import os
import signal
import subprocess
import sys
from pathlib import Path

CODE = """
import sys
from penstock.pipeline.scratch import scratch_folder
folder = scratch_folder()
(folder / "python").write_text("script")
print(folder, flush=True)
sys.stdin.read()
"""


def started(place: Path) -> "tuple[subprocess.Popen[str], Path]":
    environment = {**os.environ, "TMPDIR": str(place)}
    process = subprocess.Popen(
        [sys.executable, "-c", CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def ended(process: "subprocess.Popen[str]", number: signal.Signals | None) -> None:
    if number is not None:
        process.send_signal(number)
    process.communicate()


def test_the_folder_of_a_killed_run_is_deleted_by_the_next_one(tmp_path: Path) -> None:
    killed, left = started(tmp_path)
    living, used = started(tmp_path)
    ended(killed, signal.SIGKILL)
    assert left.exists()
    (tmp_path / "penstock-pipeline-file").write_text("a file is no folder of a run")

    next_run, own = started(tmp_path)

    assert not left.exists()
    assert (used / "python").exists()
    assert own.exists()
    ended(next_run, None)
    ended(living, None)
    assert [path.name for path in tmp_path.iterdir()] == ["penstock-pipeline-file"]
