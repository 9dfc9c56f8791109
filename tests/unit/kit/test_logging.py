"""The shape of log lines, on a terminal and elsewhere."""

import io
import json
import logging
import sys
import warnings

import pytest
import structlog

from penstock.kit.logging import configure, logger


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def _as_before():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def written(monkeypatch, act, stream=None, level="info", log_format="auto"):
    stream = stream or io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    configure(level, log_format)
    act()
    return stream.getvalue()


def test_each_line_begins_with_the_same_four_fields(monkeypatch):
    (line,) = written(monkeypatch, lambda: logger("engine").info("segment removed", segment=7)).splitlines()

    found = json.loads(line)
    assert list(found) == ["timestamp", "level", "logger", "event", "segment"]
    assert {**found, "timestamp": ""} == {
        "timestamp": "",
        "level": "info",
        "logger": "engine",
        "event": "segment removed",
        "segment": 7,
    }


def test_a_terminal_gets_coloured_lines_for_people(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)

    text = written(monkeypatch, lambda: logger("engine").info("segment removed"), Terminal())

    assert "\x1b[" in text
    assert "engine" in text
    assert not text.startswith("{")


def test_colour_can_be_refused(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")

    assert "\x1b[" not in written(monkeypatch, lambda: logger("engine").info("segment removed"), Terminal())


def test_what_libraries_log_is_json_too(monkeypatch):
    def act():
        logging.getLogger("asyncio").error("Task exception was never retrieved")
        logging.getLogger("asyncio").info("not logged")
        warnings.warn_explicit("old call", DeprecationWarning, "module.py", 1)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        lines = [json.loads(line) for line in written(monkeypatch, act).splitlines()]

    assert [(line["logger"], line["level"]) for line in lines] == [("asyncio", "error"), ("py.warnings", "warning")]
    assert lines[0]["event"] == "Task exception was never retrieved"


def test_a_traceback_is_a_field(monkeypatch):
    def act():
        try:
            raise ValueError("a\nb")
        except ValueError:
            logger("tasks").error("task failed", exc_info=True)

    (line,) = written(monkeypatch, act).splitlines()

    assert "ValueError" in json.loads(line)["exception"]


def test_lines_below_the_level_are_not_written(monkeypatch):
    assert written(monkeypatch, lambda: logger("engine").info("segment removed"), level="warning") == ""


def test_a_traceback_on_a_terminal_shows_no_values(monkeypatch):
    """It showed all variables of each function, and so passwords that clients had sent."""
    secret = "anna" * 3  # in no line of source

    def fail(password):
        raise RuntimeError(len(password))

    def act():
        try:
            fail(secret)
        except RuntimeError as bug:
            logger("tasks").error("a task failed", exc_info=bug)

    text = written(monkeypatch, act, Terminal())

    assert "RuntimeError" in text
    assert "in fail" in text
    assert secret not in text


def test_a_client_cannot_command_the_terminal_of_the_log(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")

    def act():
        logger("audit").info("LogIn", user="a\x1b[2J\x9b\nready", about={"name": "b\x1b[2J"})
        logging.getLogger("library").warning("failed: %s", "c\x1b[2J")

    text = written(monkeypatch, act, Terminal())

    assert len(text.splitlines()) == 2
    assert not {"\x1b", "\x9b"} & set(text)
    for shown in (r"a\x1b[2J\x9b\nready", r"b\x1b[2J", r"c\x1b[2J"):
        assert shown in text
