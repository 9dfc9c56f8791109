"""Streams whose other end is a test, which waits for requests, sends responses, and chooses the end."""

from collections.abc import Iterator
from queue import SimpleQueue
from threading import Condition, Thread

from google.protobuf.message import Message

from penstock.client.following import Wait
from penstock.client.streams import Stream
from penstock.client.transport import StatusError

__all__ = ["FakeStream", "FakeStreams"]

WAIT_SECONDS = 5.0


class FakeStream:
    """One call. `requests` grows on a thread of its own, as with a real connection."""

    def __init__(self, method: str, requests: Iterator[bytes]) -> None:
        self.method = method
        self._requests: list[bytes] = []
        self._changed = Condition()
        self._responses: SimpleQueue[bytes | StatusError | None] = SimpleQueue()
        self.is_cancelled = False
        self.is_done_sending = False
        self._thread = Thread(target=self._pump, args=(requests,), daemon=True)
        self._thread.start()

    def sent(self, count: int) -> list[bytes]:
        """Return the requests so far, once there are `count`."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: len(self._requests) >= count, WAIT_SECONDS)
            assert arrived, f"{len(self._requests)} requests were sent, not {count}"
            return list(self._requests)

    def wait_until_done_sending(self) -> list[bytes]:
        with self._changed:
            assert self._changed.wait_for(lambda: self.is_done_sending, WAIT_SECONDS), "the requests did not end"
            return list(self._requests)

    def say(self, response: Message) -> None:
        self._responses.put(response.SerializeToString())

    def fail(self, code: int, message: str, details: bytes = b"", wait: Wait = Wait.LONG) -> None:
        status = StatusError(code, message, details)
        status.wait = wait
        self._responses.put(status)

    def finish(self) -> None:
        self._responses.put(None)

    def cancel(self) -> None:
        self.is_cancelled = True
        self.fail(1, "cancelled by the client")

    def give_up(self, status: StatusError) -> StatusError:
        self.is_cancelled = True
        return status

    def __iter__(self) -> Iterator[bytes]:
        while (response := self._responses.get()) is not None:
            if isinstance(response, StatusError):
                raise response
            yield response

    def _pump(self, requests: Iterator[bytes]) -> None:
        for request in requests:
            with self._changed:
                self._requests.append(request)
                self._changed.notify_all()
        with self._changed:
            self.is_done_sending = True
            self._changed.notify_all()
        # As a broker does: it ends the stream when the client has closed its side.
        self.finish()


class FakeStreams:
    """Opens streams and passes each to the test, in order."""

    def __init__(self) -> None:
        self._opened: SimpleQueue[FakeStream] = SimpleQueue()

    def open(self, method: str, requests: Iterator[bytes]) -> Stream:
        stream = FakeStream(method, requests)
        self._opened.put(stream)
        return stream

    def next_stream(self) -> FakeStream:
        return self._opened.get(timeout=WAIT_SECONDS)
