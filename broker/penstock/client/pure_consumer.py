"""A consume stream over grpcio: deliveries are kept until taken, settlements gather until they are sent.

Two threads serve it: grpcio's, which asks for the next request, and one of its own that reads responses and reconnects.
Deliveries of an earlier connection cannot be settled any more: the broker requeued them when that connection broke.
With auto-ack it had settled them when it sent them, and they stay here until they are taken.
"""

from collections import deque
from collections.abc import Iterator
from threading import Condition, Thread

from penstock.client.backoff import Backoff
from penstock.client.errors import CANCELLED, UNAVAILABLE
from penstock.client.messages import ReceivedMessage
from penstock.client.streams import Stream, Streams, may_come_back, seconds_until_retry
from penstock.client.transport import ConsumerOptions, StatusError
from penstock.client.wake import Wake
from penstock.v1 import messaging_pb2

__all__ = ["PureConsumer", "PureMessage"]

METHOD = "/penstock.v1.MessagingService/Consume"
CLOSE_MS = 5_000
# What may wait here besides the last response that came: a prefetch says nothing about the size of messages.
WAITING_BYTES_MAX = 16 << 20


class PureMessage(ReceivedMessage):
    """One message of the stream that `connection` counts; settling it on a later one does nothing."""

    __slots__ = ("_connection", "_consumer")

    def __init__(self, consumer: "PureConsumer", delivery: messaging_pb2.Delivery, connection: int) -> None:
        super().__init__(delivery)
        self._consumer = consumer
        self._connection = connection

    def _settle(self, outcome: int) -> None:
        self._consumer.settle_one(self._connection, self.sequence, outcome)


class PureConsumer:
    """A consumer without native code.

    Invariants, under `_changed`: settlements waiting here belong to the stream of `_life`, deliveries too except with
    auto-ack; those deliveries have `_bytes` bytes of bodies, never more than WAITING_BYTES_MAX and one response.
    """

    def __init__(self, streams: Streams, options: ConsumerOptions, backoff: Backoff) -> None:
        self._streams = streams
        self._options = options
        self._backoff = backoff
        self._changed = Condition()
        self._arrived: deque[PureMessage] = deque()
        self._bytes = 0
        self._settlements: list[tuple[int, int]] = []
        self._prefetch = options.prefetch
        self._is_flow_due = False
        self._tag = options.consumer_tag
        self._stream: Stream | None = None
        self._life = 0
        self._ended: StatusError | None = None
        self._was_open = False
        self._is_cancelled = False
        self._is_closed = False
        # A value of a wrong type is the caller's mistake; on grpcio's thread it would end no wait.
        self._opening()
        self._wake = Wake()
        self._thread = Thread(target=self._run, name="penstock-consumer", daemon=True)
        self._thread.start()

    @property
    def wake_fd(self) -> int:
        return self._wake.fileno()

    @property
    def consumer_tag(self) -> str:
        return self._tag

    def take(self, count_max: int) -> list[PureMessage]:
        with self._changed:
            return self._take(count_max)

    def wait(self, count_max: int, timeout_ms: int) -> list[PureMessage]:
        with self._changed:
            self._changed.wait_for(lambda: self._arrived or self._ended or self._is_closed, timeout_ms / 1000)
            return self._take(count_max)

    def flow(self, prefetch: int) -> None:
        with self._changed:
            self._prefetch = prefetch
            self._is_flow_due = True
            self._changed.notify_all()

    def flush(self) -> None:
        """Settlements go out as soon as the stream takes them; there is nothing to hurry."""

    def settle_one(self, connection: int, sequence: int, outcome: int) -> None:
        if self._options.auto_ack:
            return
        with self._changed:
            if connection != self._life:
                return
            self._settlements.append((outcome, sequence))
            if len(self._settlements) == 1:
                self._changed.notify_all()

    def begin_close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def close(self, timeout_ms: int = CLOSE_MS) -> None:
        self.begin_close()
        # The sending side ends by itself once the last settlements are out; then the broker ends the stream.
        self._thread.join(timeout_ms / 1_000)
        if self._stream is not None:
            self._stream.cancel()
        self._wake.close()

    def abandon(self) -> None:
        """Close it in the background, unless it is closed: no stream is opened from now on."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._changed.notify_all()
        Thread(target=self.close, name="penstock-consumer-close", daemon=True).start()

    def _take(self, count_max: int) -> list[PureMessage]:
        arrived = self._arrived
        if not arrived:
            self._wake.clear()
            if self._ended is not None:
                raise StatusError(*self._ended.args)
            return []
        if count_max >= len(arrived):
            taken = list(arrived)
            arrived.clear()
            self._wake.clear()
        else:
            taken = [arrived.popleft() for _ in range(count_max)]
        self._bytes -= sum(len(message.body) for message in taken)
        self._changed.notify_all()
        return taken

    # ------------------------------------------------------------ the sending thread (grpcio's)

    def _requests(self, life: int) -> Iterator[bytes]:
        with self._changed:
            opening = self._opening()
        yield messaging_pb2.ConsumeRequest(open=opening).SerializeToString()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._has_request(life))
                if self._life != life:
                    return
                settlements, self._settlements = self._settlements, []
                is_flow_due, self._is_flow_due = self._is_flow_due, False
                prefetch, is_last = self._prefetch, self._is_closed
            for settlement in _gather(settlements):
                yield messaging_pb2.ConsumeRequest(settle=settlement).SerializeToString()
            if is_flow_due:
                yield messaging_pb2.ConsumeRequest(flow=messaging_pb2.Flow(prefetch=prefetch)).SerializeToString()
            if is_last:
                return

    def _opening(self) -> messaging_pb2.ConsumeOpen:
        options = self._options
        return messaging_pb2.ConsumeOpen(
            vhost=options.vhost,
            queue=options.queue,
            consumer_tag=self._tag,
            prefetch=self._prefetch or options.prefetch,
            auto_ack=options.auto_ack,
            exclusive=options.exclusive,
            priority=options.priority,
            consumer_timeout_ms=options.consumer_timeout_ms,
        )

    def _has_request(self, life: int) -> bool:
        return bool(self._settlements) or self._is_flow_due or self._is_closed or self._life != life

    # ------------------------------------------------------------ the reading thread

    def _run(self) -> None:
        while not self._is_closed:
            ended = self._read_stream()
            with self._changed:
                self._life += 1
                self._changed.notify_all()
                self._settlements.clear()
                if self._is_closed:
                    return
                is_passing = not self._is_cancelled and may_come_back(ended, self._was_open)
                if not is_passing or not self._options.reconnect:
                    self._ended = ended
                    self._changed.notify_all()
                    self._wake.set()
                    return
                if not self._options.auto_ack:
                    # What was not taken yet returned to the queue, and comes again.
                    self._arrived.clear()
                    self._bytes = 0
                self._changed.wait_for(lambda: self._is_closed, seconds_until_retry(ended, self._backoff))

    def _read_stream(self) -> StatusError:
        """One stream from its opening to its end; what ended it."""
        with self._changed:
            if self._is_closed:
                return StatusError(CANCELLED, "the consumer is closed", b"")
            life = self._life
            # A consumer that was paused stays so: the opening cannot say 0.
            self._is_flow_due = self._prefetch == 0
            stream = self._stream = self._streams.open(METHOD, self._requests(life))
        try:
            for payload in stream:
                cancelled = self._on_response(messaging_pb2.ConsumeResponse.FromString(payload), life)
                if cancelled is not None:
                    return cancelled
        except StatusError as error:
            return error
        return StatusError(UNAVAILABLE, "the broker ended the consume stream", b"")

    def _on_response(self, response: messaging_pb2.ConsumeResponse, life: int) -> StatusError | None:
        """Keep the received deliveries. Return the status if it ends the consumer for good."""
        with self._changed:
            if response.HasField("cancelled"):
                self._is_cancelled = True
                return StatusError(CANCELLED, f"the broker cancelled the consumer: {response.cancelled.reason}", b"")
            if response.HasField("opened"):
                self._tag = response.opened.consumer_tag
                self._was_open = True
                self._backoff.reset()
                return None
            self._changed.wait_for(lambda: self._has_room() or self._is_closed)
            if not self._is_closed:
                self._arrived.extend(PureMessage(self, delivery, life) for delivery in response.deliveries.deliveries)
                self._bytes += sum(len(delivery.body) for delivery in response.deliveries.deliveries)
                self._changed.notify_all()
                self._wake.set()
        return None

    def _has_room(self) -> bool:
        # With acks the prefetch bounds how many are here; without, only not reading does.
        is_room = not self._options.auto_ack or len(self._arrived) < max(self._options.prefetch, 1)
        return is_room and self._bytes < WAITING_BYTES_MAX


def _gather(settlements: list[tuple[int, int]]) -> list[messaging_pb2.Settlement]:
    """Return a settlement for each outcome, its sequences as ranges."""
    found: dict[int, messaging_pb2.Settlement] = {}
    last = 0
    for outcome, sequence in sorted(settlements):
        settlement = found.get(outcome)
        if settlement is None:
            settlement = found[outcome] = messaging_pb2.Settlement()
            settlement.outcome = messaging_pb2.Outcome.Name(outcome)  # type: ignore[assignment]
        elif sequence == last + 1:
            last = settlement.ranges[-1].last = sequence
            continue
        settlement.ranges.add(first=sequence, last=sequence)
        last = sequence
    return list(found.values())
