"""Commands in a test know no contexts of the machine that runs it."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def no_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("PENSTOCK_URI", "PENSTOCK_CONTEXT", "PENSTOCK_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
