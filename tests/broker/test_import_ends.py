"""`penstock import` that a signal ends in the middle: its message, what it leaves, and a broker's start on that."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.broker import penstock_command

GOLDEN = Path(__file__).parent.parent / "golden" / "lavinmq"
PROGRAM = """
import os, signal, sys
from penstock.cli.main import app

# A job in the background of a script ignores it, and so do its children.
signal.signal(signal.SIGINT, signal.default_int_handler)

def hook(event, arguments):
    if event == "open" and "/.importing/" in str(arguments[0]) and "msgs." in str(arguments[0]):
        os.kill(os.getpid(), int(sys.argv[1]))

sys.addaudithook(hook)
app(sys.argv[2:])
"""


def ended_by(number: signal.Signals, target: Path) -> "subprocess.CompletedProcess[str]":
    """Run an import that gets the signal when it writes the first log."""
    words = ["import", "lavinmq", str(GOLDEN), "--data-dir", str(target)]
    return run(sys.executable, "-c", PROGRAM, str(int(number)), *words)


def run(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=os.environ)


@pytest.mark.parametrize(
    ("number", "status", "message"),
    [(signal.SIGTERM, 143, "penstock: ended by SIGTERM; the files"), (signal.SIGINT, 130, "interrupted\n")],
)
def test_a_signal_ends_an_import_with_its_message_and_nothing_is_left(
    number: signal.Signals, status: int, message: str, tmp_path: Path
) -> None:
    done = ended_by(number, tmp_path / "data")

    assert done.returncode == status
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "data").exists()


def test_a_broker_does_not_start_on_an_import_that_was_killed(tmp_path: Path) -> None:
    target = tmp_path / "data"
    assert ended_by(signal.SIGKILL, target).returncode == -signal.SIGKILL

    started = run(
        penstock_command(),
        "serve",
        "--data-dir",
        str(target),
        "--grpc",
        "127.0.0.1:0",
        "--amqp",
        "off",
        "--metrics",
        "off",
    )
    again = run(penstock_command(), "import", "lavinmq", str(GOLDEN), "--data-dir", str(target))

    assert started.returncode != 0
    assert (
        "holds an import that was not completed; run `penstock import lavinmq` again, which begins anew, "
        "or delete the directory's contents"
    ) in started.stderr + started.stdout
    assert again.returncode == 0, again.stderr
    assert (target / "vhosts.json").exists()
    assert not (target / ".importing").exists()
