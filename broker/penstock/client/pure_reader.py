"""A read stream over grpcio, of one partition: responses are kept until taken, and each then returns its credit.

Two threads serve it: grpcio's, which asks for the next request, and one of its own that reads responses and reconnects.
After a broken connection it begins behind the last message that came; what comes twice all the same, because the
group's stored offset lies further back, is passed over.
"""

from collections import deque
from collections.abc import Iterator
from threading import Condition, Thread

from penstock.client.backoff import Backoff
from penstock.client.errors import CANCELLED, UNAVAILABLE
from penstock.client.stream_messages import ReceivedStreamMessage
from penstock.client.streams import Stream, Streams, may_come_back, seconds_until_retry
from penstock.client.transport import ReaderOptions, StatusError
from penstock.client.wake import Wake
from penstock.v1 import streams_pb2

__all__ = ["PureReader"]

METHOD = "/penstock.v1.StreamService/Read"
CLOSE_SECONDS = 5.0


class PureReader:
    """A reader without native code.

    Invariants, under `_changed`: nothing below `_behind` comes any more, because it came before; `_next` is where a new
    stream would begin, None until the broker said where this one does; the broker's credit and the responses in
    `_arrived` never are more than `options.credit` together.
    """

    def __init__(self, streams: Streams, options: ReaderOptions, backoff: Backoff) -> None:
        self._streams = streams
        self._options = options
        self._backoff = backoff
        self._changed = Condition()
        self._arrived: deque[list[ReceivedStreamMessage]] = deque()
        self._next: int | None = None
        self._behind = 0
        self._credit_due = 0
        self._stored: int | None = None
        self._stream: Stream | None = None
        self._life = 0
        self._ended: StatusError | None = None
        self._is_active = not options.single_active
        self._is_cancelled = False
        self._is_finished = False
        self._is_closed = False
        # A value of a wrong type is the caller's mistake; on this thread it would end no wait.
        self._opening()
        self._wake = Wake()
        self._thread = Thread(target=self._run, name="penstock-reader", daemon=True)
        self._thread.start()

    @property
    def partition(self) -> str:
        return self._options.partition

    @property
    def wake_fd(self) -> int:
        return self._wake.fileno()

    @property
    def is_active(self) -> bool:
        return self._is_active

    @property
    def is_finished(self) -> bool:
        """The end was reached, and everything was taken."""
        with self._changed:
            return self._is_finished and not self._arrived

    def take(self, count_max: int) -> list[ReceivedStreamMessage]:
        with self._changed:
            if not self._arrived:
                self._wake.clear()
                if self._ended is not None:
                    raise StatusError(*self._ended.args)
                return []
            batch = self._arrived[0]
            if len(batch) > count_max:
                self._arrived[0] = batch[count_max:]
                return batch[:count_max]
            self._arrived.popleft()
            self._credit_due += 1
            self._changed.notify_all()
            if not self._arrived and self._ended is None and not self._is_finished:
                self._wake.clear()
            return batch

    def store(self, offset: int) -> None:
        """Store the offset of the next message to read. Only the last one is sent, when the stream takes it."""
        with self._changed:
            self._stored = offset
            self._changed.notify_all()

    def close(self) -> None:
        """End without waiting for an offset that was stored in passing: a call of its own stores one for certain."""
        with self._changed:
            self._is_closed = True
            stream = self._stream
            self._changed.notify_all()
        if stream is not None:
            stream.cancel()
        self._thread.join(CLOSE_SECONDS)
        self._wake.close()

    def abandon(self) -> None:
        """Close it in the background, unless it is closed: no stream is opened from now on."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._changed.notify_all()
        Thread(target=self.close, name="penstock-reader-close", daemon=True).start()

    # ------------------------------------------------------------ the sending thread (grpcio's)

    def _requests(self, opening: streams_pb2.ReadOpen, life: int) -> Iterator[bytes]:
        yield streams_pb2.ReadRequest(open=opening).SerializeToString()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._has_request(life))
                if self._life != life:
                    return
                if self._is_closed:
                    return
                stored, self._stored = self._stored, None
                credit, self._credit_due = self._credit_due, 0
            if stored is not None:
                yield streams_pb2.ReadRequest(stored=streams_pb2.Stored(offset=stored)).SerializeToString()
            if credit:
                yield streams_pb2.ReadRequest(credit=streams_pb2.Credit(responses=credit)).SerializeToString()

    def _has_request(self, life: int) -> bool:
        return (
            self._stored is not None
            or 2 * self._credit_due >= self._options.credit
            or self._is_closed
            or self._life != life
        )

    # ------------------------------------------------------------ the reading thread

    def _run(self) -> None:
        while not self._is_closed:
            ended = self._read_stream()
            with self._changed:
                self._life += 1
                self._changed.notify_all()
                if self._is_closed or self._is_finished:
                    self._wake.set()
                    return
                is_passing = not self._is_cancelled and may_come_back(ended, self._next is not None)
                if not is_passing or not self._options.reconnect:
                    self._ended = ended
                    self._wake.set()
                    return
                self._is_active = not self._options.single_active
                self._changed.wait_for(lambda: self._is_closed, seconds_until_retry(ended, self._backoff))

    def _read_stream(self) -> StatusError:
        """One stream from its opening to its end; what ended it."""
        with self._changed:
            if self._is_closed:
                return StatusError(CANCELLED, "the reader is closed", b"")
            opening = self._opening()
            self._credit_due = 0
            stream = self._stream = self._streams.open(METHOD, self._requests(opening, self._life))
        try:
            for payload in stream:
                cancelled = self._on_response(streams_pb2.ReadResponse.FromString(payload))
                if cancelled is not None:
                    return cancelled
        except StatusError as error:
            return error
        with self._changed:
            # The broker ends a stream quietly for one reason: its end was reached.
            self._is_finished = self._options.end is not None
        return StatusError(UNAVAILABLE, "the broker ended the read stream", b"")

    def _opening(self) -> streams_pb2.ReadOpen:
        """Return the request that opens the stream. Messages that wait here count against its credit."""
        options = self._options
        opening = streams_pb2.ReadOpen(
            vhost=options.vhost,
            partition=options.partition,
            end=options.end,
            credit=max(1, options.credit - len(self._arrived)),
            group=options.group,
            single_active=options.single_active,
            from_replica=options.from_replica,
        )
        if self._next is None:
            opening.start.ParseFromString(options.start)
        else:
            opening.start.offset = self._next
        return opening

    def _on_response(self, response: streams_pb2.ReadResponse) -> StatusError | None:
        """Keep the received messages. Return the status if it ends the reader for good."""
        kind = response.WhichOneof("response")
        with self._changed:
            if kind == "cancelled":
                self._is_cancelled = True
                return StatusError(CANCELLED, f"the broker ended the reader: {response.cancelled.reason}", b"")
            if kind == "active":
                self._is_active = response.active.active
                if self._is_active:
                    self._next = max(self._behind, response.active.begin)
                self._wake.set()
            elif kind == "opened":
                # From now on it is known where to go on, also if nothing comes before the connection breaks.
                self._next = max(self._behind, response.opened.begin)
                self._backoff.reset()
            elif kind == "deliveries":
                self._keep(response)
        return None

    def _keep(self, response: streams_pb2.ReadResponse) -> None:
        behind, partition = self._behind, self._options.partition
        new = (each for each in response.deliveries.deliveries if each.sequence >= behind)
        batch = [ReceivedStreamMessage(each, partition) for each in new]
        if not batch:
            self._credit_due += 1
            self._changed.notify_all()
            return
        self._next = self._behind = batch[-1].offset + 1
        self._arrived.append(batch)
        self._wake.set()
