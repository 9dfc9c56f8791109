"""Code and commands of the documents for new users, run against a broker."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from support import Broker
from support.broker import free_ports, penstock_command

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ("README.md", "docs/getting-started.md", "docs/streams.md")
DEFAULT_URI = "penstock://guest:guest@127.0.0.1:5680/"
AMQP_URI = "amqp://guest:guest@localhost/%2F"


def blocks(document: str, language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL)
    return [text for name, text in fenced if name == language]


def run(document: str, block: str) -> None:
    exec(compile(block, document, "exec"), {})


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_python_of_a_document_runs(
    broker: Broker, vhost: str, document: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = [block for block in blocks(document, "python") if AMQP_URI not in block]
    assert len(code) > 0

    for block in code:
        assert DEFAULT_URI in block
        run(document, block.replace(DEFAULT_URI, broker.uri(vhost)))

    assert "b'" in capsys.readouterr().out


def test_the_python_over_amqp_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = [block for block in blocks("README.md", "python") if AMQP_URI in block]
    port = free_ports(1)[0]
    with Broker(tmp_path / "data", "--amqp", f"127.0.0.1:{port}"):
        run("README.md", block.replace("localhost", f"127.0.0.1:{port}"))

    assert capsys.readouterr().out == "b'hello'\n"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_commands_of_a_document_run_in_their_order(broker: Broker, vhost: str, document: str) -> None:
    lines = [line for block in blocks(document, "") for line in block.splitlines() if ".venv/bin/penstock " in line]
    assert len(lines) > 1

    environment = {**os.environ, "PENSTOCK_URI": broker.uri(vhost)}
    for line in lines:
        command = line.replace(".venv/bin/penstock", shlex.quote(penstock_command()))
        shell = ["bash", "-o", "pipefail", "-c", command]
        done = subprocess.run(shell, env=environment, capture_output=True, text=True, check=False, timeout=30)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
