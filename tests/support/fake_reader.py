"""A reader of one partition, fed by a test from any thread."""

from collections import deque
from threading import Lock

from penstock.client.stream_messages import ReceivedStreamMessage
from penstock.client.transport import ReaderOptions, StatusError
from penstock.client.wake import Wake
from penstock.v1 import messaging_pb2

__all__ = ["FakeReader"]


class FakeReader:
    """A `ReaderPort`. `stored` are the stored offsets."""

    def __init__(self, options: ReaderOptions) -> None:
        self.options = options
        self.stored: list[int] = []
        self.is_closed = False
        self.is_active = True
        self._is_finished = False
        self._ended: StatusError | None = None
        self._arrived: deque[ReceivedStreamMessage] = deque()
        self._wake = Wake()
        self._lock = Lock()

    @property
    def partition(self) -> str:
        return self.options.partition

    @property
    def wake_fd(self) -> int:
        return self._wake.fileno()

    @property
    def is_finished(self) -> bool:
        return self._is_finished and not self._arrived

    def put(self, *offsets: int) -> None:
        with self._lock:
            for offset in offsets:
                delivery = messaging_pb2.Delivery(sequence=offset, body=str(offset).encode(), stored_at_ms=1_500)
                self._arrived.append(ReceivedStreamMessage(delivery, self.partition))
            self._wake.set()

    def finish(self) -> None:
        self._is_finished = True
        self._wake.set()

    def end(self, code: int, message: str) -> None:
        self._ended = StatusError(code, message, b"")
        self._wake.set()

    def take(self, count_max: int) -> list[ReceivedStreamMessage]:
        with self._lock:
            if not self._arrived:
                self._wake.clear()
                if self._ended is not None:
                    raise StatusError(*self._ended.args)
            return [self._arrived.popleft() for _ in range(min(count_max, len(self._arrived)))]

    def store(self, offset: int) -> None:
        self.stored.append(offset)

    def close(self) -> None:
        self.is_closed = True
        self._wake.close()
