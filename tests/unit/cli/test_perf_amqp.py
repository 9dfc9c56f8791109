"""`perf amqp` around the load generator: the password, and an interruption."""

import os
import signal
from pathlib import Path
from threading import Event, Timer
from typing import Any

import pytest

from penstock.cli import perf_amqp
from penstock.cli.output import Format


def test_the_password_is_that_of_the_file_or_of_the_uri_or_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "password"
    file.write_text("from file\nmore\n")
    monkeypatch.setenv("PENSTOCK_PASSWORD", "from environment")

    assert perf_amqp._password("written", file) == "from file"
    assert perf_amqp._password("written", None) == "written"
    assert perf_amqp._password(None, None) == "from environment"
    monkeypatch.delenv("PENSTOCK_PASSWORD")
    assert perf_amqp._password(None, None) == "guest"


class InterruptedGenerator:
    """A load generator that runs until it is interrupted."""

    def __init__(self) -> None:
        self._end = Event()

    def measure_amqp(self, options: dict[str, Any]) -> dict[str, Any]:
        assert self._end.wait(30), "it was not interrupted"
        Event().wait(0.2)
        return {"size": options["size"]}

    def interrupt_amqp(self) -> None:
        self._end.set()


# Python 3.11 takes a thread for ended once a join of it was interrupted, so a second join did not wait for the figures.
def test_an_interrupted_run_still_has_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = InterruptedGenerator()
    monkeypatch.setattr("penstock.cli.perf_amqp._native", lambda: generator)
    interruption = Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    # Processes that a shell starts in the background ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        interruption.start()
        assert perf_amqp._measured({"size": 16, "seconds": None}, Format.JSON) == ({"size": 16}, True)
    finally:
        signal.signal(signal.SIGINT, before)
