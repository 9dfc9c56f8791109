"""One call of DoPut: pieces of batches go out, and the broker's answers are read meanwhile."""

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from penstock.spark.calls import FAILURES
from penstock.spark.errors import SparkConnectorError

__all__ = ["PutCall", "pieces_of"]

# A batch may have 64 MiB, but the broker holds it whole in memory.
PUT_BYTES_MAX = 8 * 2**20
# A broker has so long to end a call that is given up.
END_SECONDS_MAX = 10.0


class PutCall:
    """A call. Use it as a context manager."""

    def __init__(self, writer: Any, results: Any) -> None:
        self._writer = writer
        self._answers = Answers(results)
        self._sent = 0

    def begin(self, first: pa.RecordBatch) -> None:
        """Send the first piece; return when the broker has answered it."""
        try:
            self.send(first)
            if not self._answers.has_first():
                # Closing raises the error that ended the call.
                self._writer.close()
                raise OSError("the broker ended the call without an answer")
        except FAILURES:
            self._close()
            raise

    def send(self, piece: pa.RecordBatch) -> None:
        self._writer.write_batch(piece)
        self._sent += piece.num_rows

    def finish(self) -> dict[str, int]:
        """Return the broker's final answer; raise SparkConnectorError when it is not about all rows."""
        self._writer.done_writing()
        answer = self._answers.last()
        self._writer.close()
        if self._sent and answer.get("confirmed") != self._sent:
            raise SparkConnectorError(
                f"{self._sent} rows were sent, and the broker confirmed {answer.get('confirmed')} of them at the end; "
                "repeat the task, and see the log of the broker"
            )
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._close()

    def _close(self) -> None:
        """Close after an error, which says more than that of closing. A broker that does not end the call is left.

        The call is over only when it has no more rows: the thread that reads its answers waits for that, and closing
        waits for that thread. Rows that are missing do no harm, as an error of the task follows.
        """
        closing = threading.Thread(target=self._end, daemon=True)
        closing.start()
        closing.join(END_SECONDS_MAX)

    def _end(self) -> None:
        with suppress(*FAILURES):
            self._writer.done_writing()
        self._answers.wait()
        with suppress(*FAILURES):
            self._writer.close()


class Answers:
    """Reader of results on its own thread: unread results would stop the broker from reading rows."""

    def __init__(self, results: Any) -> None:
        self._results = results
        self._last: dict[str, int] = {}
        self._error: Exception | None = None
        # Set by the first answer, and by the end of the call.
        self._has_answered = threading.Event()
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def has_first(self) -> bool:
        """Wait for an answer or the end of the call; return whether there is an answer, raise what was raised."""
        self._has_answered.wait()
        if self._error is not None:
            raise self._error
        return bool(self._last)

    def wait(self) -> None:
        """Wait for the end of the call."""
        self._thread.join()

    def last(self) -> dict[str, int]:
        """Return the broker's final answer; raise what it raised."""
        self.wait()
        if self._error is not None:
            raise self._error
        return self._last

    def _take(self) -> None:
        try:
            while (result := self._results.read()) is not None:
                self._last = json.loads(result.to_pybytes())
                self._has_answered.set()
        except FAILURES as error:
            self._error = error
        except ValueError as error:
            self._error = OSError(f"an answer of the broker is not JSON: {error}")
        except Exception as error:  # noqa: BLE001 - the task raises it: without it an old answer would count as the last
            self._error = error
        finally:
            self._has_answered.set()


def pieces_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the batch in pieces of at most PUT_BYTES_MAX, or of one row.

    It is halved and not divided by rows: large rows may stand side by side.
    """
    if batch.num_rows > 1 and batch.nbytes > PUT_BYTES_MAX:
        half = batch.num_rows // 2
        yield from pieces_of(batch.slice(0, half))
        yield from pieces_of(batch.slice(half))
    elif batch.num_rows:
        yield batch
