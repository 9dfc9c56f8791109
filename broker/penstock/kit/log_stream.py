"""Standard error that never makes its writers wait: the broker serves also while its log is not read.

A thread writes what the others queue. Text that does not fit into the queue, or cannot be written, is dropped; its
lines are counted, and a line of the log reports them once text can be written again. Python's own output, such as the
traceback of a crash, takes the same way. Limit: a kill of the process loses the lines that are still queued.
"""

import atexit
import os
import select
import sys
from collections import deque
from collections.abc import Callable
from threading import Condition, Thread
from typing import Final, TextIO, cast

from penstock.kit.settings import LOG_EXIT_SECONDS, LOG_QUEUE_BYTES_MAX

Report = Callable[[int], None]
STDERR: Final = 2


class LogStream:
    """A text stream for any thread. Invariant: queued and unwritten text together are at most `bytes_max` bytes."""

    def __init__(self, file: int, report: Report, bytes_max: int = LOG_QUEUE_BYTES_MAX) -> None:
        """Write to an open file. `report` logs a number of dropped lines, on the thread that writes."""
        self.dropped = 0
        """Lines dropped since the start."""
        self._file = file
        self._report = report
        self._bytes_max = bytes_max
        self._bytes = 0
        self._unreported = 0
        self._queue: deque[bytes] = deque()
        self._changed = Condition()
        Thread(target=self._write_all, name="log", daemon=True).start()

    @property
    def encoding(self) -> str:
        return "utf-8"

    def write(self, text: str) -> int:
        """Queue text, or drop it as a whole. Return its length, as every text stream does."""
        data = text.encode(errors="backslashreplace")
        if not data:
            return 0
        with self._changed:
            if self._bytes + len(data) > self._bytes_max:
                self._drop(data)
            else:
                self._bytes += len(data)
                self._queue.append(data)
                self._changed.notify_all()
        return len(text)

    def flush(self) -> None:
        """Do nothing: the thread writes what is queued, and `drain` waits for it."""

    def isatty(self) -> bool:
        return os.isatty(self._file)

    def fileno(self) -> int:
        return self._file

    def drain(self, seconds: float = LOG_EXIT_SECONDS) -> bool:
        """Wait until everything is written, but not longer. Return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._bytes == 0, seconds)

    def _drop(self, data: bytes) -> None:
        lines = max(1, data.count(b"\n"))
        self.dropped += lines
        self._unreported += lines

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue)
                data = self._queue[0]
            is_written = self._was_written(data)
            with self._changed:
                if not is_written:
                    self._drop(data)
                del self._queue[0]
                dropped = self._unreported if is_written and not self._queue else 0
                self._unreported -= dropped
                self._bytes -= len(data)
            if dropped:
                self._report(dropped)
            with self._changed:
                self._changed.notify_all()

    def _was_written(self, data: bytes) -> bool:
        """Write text, waiting as long as it takes. Return False if the reader is gone or the disk is full."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._file, rest) :]
            except BlockingIOError:  # another process that has the same pipe or terminal set it to non-blocking
                select.select([], [self._file], [])
            except OSError:
                return False
        return True


def write_in_background(report: Report) -> LogStream:
    """Replace `sys.stderr`. Before the process exits it waits, not for long, until all is written."""
    stream = LogStream(STDERR, report)
    sys.stderr = cast(TextIO, stream)
    atexit.register(stream.drain)
    return stream
