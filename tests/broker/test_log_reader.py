"""The broker and the reader of its log: a reader that stops must not stop the broker."""

import fcntl
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from support import Broker
from support.broker import penstock_command

PIPE_BYTES = 4_096  # the smallest that Linux makes
QUEUE_BYTES = 1024 * 1024  # that the broker keeps of its log
SUBJECT = "x" * 1_000  # the longest pattern; a line with two has some 2 kB


@pytest.fixture
def unread(tmp_path: Path) -> Iterator[int]:
    """Return the reader's end of the pipe that is the log of the broker of `tmp_path / "data"`."""
    pipe = tmp_path / "data.log"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    yield reader
    os.close(reader)


class Reader:
    """Reads a log to its end, which the end of the broker is."""

    def __init__(self, unread: int) -> None:
        os.set_blocking(unread, True)
        self._file = os.dup(unread)
        self._lines: list[dict[str, object]] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def lines(self) -> list[dict[str, object]]:
        self._thread.join(timeout=30)
        assert not self._thread.is_alive()
        return self._lines

    def _read(self) -> None:
        with os.fdopen(self._file, encoding="utf-8") as log:
            self._lines.extend(json.loads(line) for line in log)


def audit(broker: Broker, count: int) -> None:
    """Make so many audit lines."""
    with penstock.connect(broker.uri()) as connection:
        for _ in range(count):
            connection.admin.set_permission("guest", "/", configure=SUBJECT, write=SUBJECT, read=".*")


def dropped(broker: Broker) -> int:
    (line,) = (line for line in broker.scrape().splitlines() if line.startswith("penstock_log_lines_dropped_total "))
    return int(float(line.split()[1]))


@pytest.mark.usefixtures("unread")
def test_a_broker_whose_log_is_not_read_serves_and_stops(tmp_path: Path) -> None:
    """A line that did not fit into the pipe stopped the event loop: no call was answered, and SIGTERM was not seen."""
    with Broker(tmp_path / "data") as broker:
        audit(broker, 20)

        assert dropped(broker) == 0
        assert broker.stop() == 0


def test_lines_that_wait_are_written_when_the_reader_continues(unread: int, tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        audit(broker, 20)
        reader = Reader(unread)
        assert broker.stop() == 0

    events = [line["event"] for line in reader.lines()]
    assert events.count("SetPermission") == 20
    assert events[-1] == "stopped"


def test_lines_that_do_not_fit_are_dropped_and_counted(unread: int, tmp_path: Path) -> None:
    count = 2 * QUEUE_BYTES // (2 * len(SUBJECT))
    with Broker(tmp_path / "data") as broker:
        audit(broker, count)
        lost = dropped(broker)
        reader = Reader(unread)
        assert broker.stop() == 0

    lines = reader.lines()
    assert lost > 0
    assert [line["event"] for line in lines].count("SetPermission") == count - lost
    assert [line["count"] for line in lines if line["event"] == "lines of the log were dropped"] == [lost]


def test_a_second_signal_ends_a_broker_whose_log_is_not_read(unread: int, tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        audit(broker, 20)
        process = broker.pid
        for number in (signal.SIGTERM, signal.SIGTERM):
            os.kill(process, number)

        assert broker.stop() in {0, 130}


def test_a_broker_without_standard_error_serves(tmp_path: Path) -> None:
    """It did not start. Its first file, the lock, must not become standard error, and the log be written into it."""
    script = f"exec {penstock_command()} serve --data-dir {tmp_path}/data --grpc off --metrics off 2>&- >&- <&-"
    process = subprocess.Popen(["sh", "-c", script])
    lock = tmp_path / "data" / ".lock"
    while not (tmp_path / "data" / "vhosts.json").exists():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)

    assert process.wait(timeout=30) == 0
    assert b"timestamp" not in lock.read_bytes()
