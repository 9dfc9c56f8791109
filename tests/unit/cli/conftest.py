"""Commands in a test know no contexts of the machine that runs it, and have a terminal to ask on."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def no_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("PENSTOCK_URI", "PENSTOCK_CONTEXT", "PENSTOCK_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let prompts read the input of the test, which is no terminal."""
    monkeypatch.setattr("penstock.cli.options.has_terminal", lambda: True)
