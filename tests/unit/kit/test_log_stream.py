"""The stream that drops text rather than make its writers wait."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from penstock.kit.log_stream import LogStream

SECONDS = 30.0


class Reports(list[int]):
    """Numbers of dropped lines that were reported."""


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Return the two ends of a pipe."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def filled(end: int) -> int:
    """Fill a pipe to its last byte, and return the number of bytes."""
    os.set_blocking(end, False)
    count = 0
    for size in (4_096, 1):
        try:
            while True:
                count += os.write(end, b"." * size)
        except BlockingIOError:
            pass
    os.set_blocking(end, True)
    return count


def exactly(end: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += os.read(end, count - len(data))
    return data


def test_text_is_written_in_order(pipe):
    reader, writer = pipe
    stream = LogStream(writer, Reports().append)

    assert stream.write("one\n") == 4
    stream.write("zwölf\n")

    assert stream.drain(SECONDS)
    assert os.read(reader, 100).decode() == "one\nzwölf\n"


def test_text_that_is_not_unicode_is_written_with_escapes(pipe):
    reader, writer = pipe
    stream = LogStream(writer, Reports().append)

    stream.write("a\ud800\n")

    assert stream.drain(SECONDS)
    assert os.read(reader, 100) == b"a\\ud800\n"


def test_text_beyond_the_bound_is_dropped_counted_and_reported_once(pipe):
    reader, writer = pipe
    before = filled(writer)
    reports = Reports()
    stream = LogStream(writer, reports.append, bytes_max=10)

    for text in ("12345\n", "1234\nabc\n", "123\n", "x\n"):
        stream.write(text)

    assert not stream.drain(0.0)
    assert stream.dropped == 3
    assert exactly(reader, before + 10)[before:] == b"12345\n123\n"
    assert stream.drain(SECONDS)
    stream.write("next\n")
    assert stream.drain(SECONDS)
    assert reports == [3]


def test_lines_without_a_reader_are_counted_and_reported_when_there_is_one(pipe):
    """A report that cannot be written must not make a report of itself."""
    reader, writer = pipe
    gone, to_nobody = os.pipe()
    reports = Reports()
    stream = LogStream(to_nobody, reports.append)
    os.close(gone)

    stream.write("lost\n")
    stream.write("lost\n")

    assert stream.drain(SECONDS)
    assert stream.dropped == 2
    assert reports == []
    os.dup2(writer, to_nobody)
    stream.write("read\n")
    assert stream.drain(SECONDS)
    assert os.read(reader, 100) == b"read\n"
    assert reports == [2]
    os.close(to_nobody)


def test_a_file_that_another_process_made_non_blocking_is_waited_for(pipe):
    reader, writer = pipe
    before = filled(writer)
    os.set_blocking(writer, False)
    stream = LogStream(writer, Reports().append)

    stream.write("late\n")

    assert not stream.drain(0.0)
    assert exactly(reader, before + 5)[before:] == b"late\n"
    assert stream.drain(SECONDS)
    assert stream.dropped == 0


CRASH = "from penstock.kit.log_stream import write_in_background as w; w(print); raise RuntimeError('a bug')"


def test_the_traceback_of_a_crash_is_written():
    crashed = subprocess.run([sys.executable, "-c", CRASH], stderr=subprocess.PIPE, text=True, check=False)

    assert crashed.returncode == 1
    assert crashed.stderr.endswith("RuntimeError: a bug\n")


def test_a_crash_ends_the_process_although_its_log_is_not_read(pipe):
    _, writer = pipe
    filled(writer)

    assert subprocess.run([sys.executable, "-c", CRASH], stderr=writer, check=False, timeout=60).returncode == 1


def test_empty_text_takes_no_room(pipe):
    """It counted for nothing, so that it was queued without bound while the log was not read."""
    reader, writer = pipe
    count = filled(writer)
    stream = LogStream(writer, Reports().append)
    stream.write("first\n")

    assert [stream.write("") for _ in range(1_000)] == [0] * 1_000

    assert len(stream._queue) == 1
    exactly(reader, count)
    assert stream.drain(SECONDS)
