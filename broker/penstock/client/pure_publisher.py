"""A publish stream over grpcio: what waits is sent as one batch, and sent again after a broken connection.

Two threads serve it: grpcio's, which asks for the next request, and one of its own that reads responses and reconnects.
A message is kept until it has an outcome; numbers go on across connections. After a message of a named producer was
refused, nothing with a higher sequence is sent before it is sent again: a broker that was started anew knows of no
refusal, would store what is higher, and then take the refused one for a duplicate. A publisher that numbers messages
itself gives up the number of a refused one: it sends a filler with that number, and then again what came behind it.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from threading import Condition, Thread
from typing import NamedTuple

from penstock.client.backoff import Backoff
from penstock.client.errors import (
    FAILED_PRECONDITION,
    INTERNAL,
    INVALID_ARGUMENT,
    RESOURCE_EXHAUSTED,
    RETURNED,
    UNAVAILABLE,
)
from penstock.client.following import Wait
from penstock.client.numbering import Numbering
from penstock.client.outcomes import Outcomes
from penstock.client.streams import Stream, Streams, is_passing, seconds_until_retry
from penstock.client.transport import PublisherOptions, StatusError
from penstock.client.wake import Wake
from penstock.v1 import message_pb2, messaging_pb2

__all__ = ["PurePublisher"]

METHOD = "/penstock.v1.MessagingService/Publish"
BATCH_BYTES_MAX = 256 * 1024
CLOSE_MS = 5_000
# The number of a filler: a message without a queue, which takes the sequence of one that was refused.
FILLER = 0
NAME_BYTES_MAX = 255
KEY_BYTES_MAX = 65_535


class _Message(NamedTuple):
    number: int
    body: bytes
    exchange: str
    routing_key: str
    properties: bytes | None
    mandatory: bool
    key: bytes | None
    sequence: int


class PureOutcome(NamedTuple):
    """An Outcome of the transport's."""

    first: int
    last: int
    code: int
    reason: str


class PurePublisher:
    """A publisher without native code.

    Invariant, under `_changed`: `_kept` holds every message that may lack an outcome, in order; the first `_sent` of
    them went into the stream that is open now.
    """

    def __init__(self, streams: Streams, options: PublisherOptions, backoff: Backoff) -> None:
        self._streams = streams
        self._options = options
        self._backoff = backoff
        self._wake = Wake()
        self._changed = Condition()
        self._kept: deque[_Message] = deque()
        self._sent = 0
        self._last = 0
        self._settled = Outcomes()
        self._outcomes: list[PureOutcome] = []
        self._numbering = Numbering()
        # Of a named producer: the lowest sequence that was refused and not sent again, or 0.
        self._refused = 0
        # Of one that numbers messages itself: a refused message whose filler is not confirmed, or 0.
        self._passed = 0
        self._stream: Stream | None = None
        self._life = 0
        self._lost: str | None = None
        self._ended: StatusError | None = None
        self._is_closed = False
        self._thread = Thread(target=self._run, name="penstock-publisher", daemon=True)
        self._thread.start()

    @property
    def wake_fd(self) -> int:
        return self._wake.fileno()

    @property
    def lost(self) -> str | None:
        return self._lost

    @property
    def is_ended(self) -> bool:
        return self._ended is not None

    def publish(
        self,
        body: bytes,
        exchange: str = "",
        routing_key: str = "",
        properties: bytes | None = None,
        mandatory: bool = False,
        key: bytes | None = None,
        sequence: int = 0,
    ) -> int:
        self._refuse([body], exchange, routing_key, properties, key, sequence)
        with self._changed:
            self._check()
            if not self._has_room():
                return 0
            return self._keep(body, exchange, routing_key, properties, mandatory, key, sequence)

    def publish_many(
        self,
        bodies: Sequence[bytes],
        exchange: str = "",
        routing_key: str = "",
        properties: bytes | None = None,
        mandatory: bool = False,
        key: bytes | None = None,
        sequence: int = 0,
    ) -> int:
        self._refuse(bodies, exchange, routing_key, properties, key, sequence)
        step = 1 if sequence else 0
        with self._changed:
            for body in bodies:
                self._check()
                while not self._has_room():
                    self._changed.wait()
                    self._check()
                self._keep(body, exchange, routing_key, properties, mandatory, key, sequence)
                sequence += step
            return self._last

    def _refuse(
        self,
        bodies: Sequence[bytes],
        exchange: str,
        routing_key: str,
        properties: bytes | None,
        key: bytes | None,
        sequence: int,
    ) -> None:
        """Refuse messages that cannot be encoded, or for which the broker would end the stream.

        They would break the stream, and again at each retry, for all messages behind them.
        """
        _refuse_types(bodies, properties, key, sequence)
        _refuse_long_names(exchange, routing_key, key)
        beside = len(properties or b"") + len(key or b"")
        most = self._options.message_bytes_max
        for body in bodies:
            if len(body) + beside > most:
                text = f"a message has {len(body) + beside} bytes; at most {most} are allowed (message_bytes_max)"
                raise StatusError(RESOURCE_EXHAUSTED, text, b"")

    def take(self) -> list[PureOutcome]:
        with self._changed:
            return self._take()

    def wait(self, timeout_ms: int) -> list[PureOutcome]:
        with self._changed:
            if not self._outcomes:
                self._changed.wait_for(lambda: self._outcomes or self._ended, timeout_ms / 1000)
            return self._take()

    def flush(self, timeout_ms: int) -> bool:
        with self._changed:
            return self._changed.wait_for(self._is_idle, timeout_ms / 1000)

    def close(self, timeout_ms: int = CLOSE_MS) -> None:
        with self._changed:
            self._is_closed = True
            stream = self._stream
            self._changed.notify_all()
        if stream is not None:
            stream.cancel()
        self._thread.join(timeout_ms / 1_000)
        self._wake.close()

    def abandon(self) -> None:
        """Close it in the background, unless it is closed: no stream is opened from now on."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._changed.notify_all()
        Thread(target=self.close, name="penstock-publisher-close", daemon=True).start()

    # ------------------------------------------------------------ under the lock

    def _is_idle(self) -> bool:
        return self._ended is not None or self._settled.settled_through == self._last

    def _check(self) -> None:
        if self._ended is not None:
            raise StatusError(*self._ended.args)
        if self._is_closed:
            raise StatusError(UNAVAILABLE, "the publisher is closed", b"")

    def _has_room(self) -> bool:
        """Return whether another message may wait for an outcome. Messages with an outcome do not count."""
        settled, most = self._settled, self._options.in_flight_max
        if self._last - settled.settled_through < most:
            return True
        if settled.count_unconfirmed(self._last) >= most:
            return False
        if len(self._kept) >= 2 * most:
            sent = [one for one in islice(self._kept, self._sent) if not settled.is_settled(one.number, one.number)]
            self._kept = deque([*sent, *islice(self._kept, self._sent, None)])
            self._sent = len(sent)
        return True

    def _keep(
        self,
        body: bytes,
        exchange: str,
        routing_key: str,
        properties: bytes | None,
        mandatory: bool,
        key: bytes | None,
        sequence: int,
    ) -> int:
        self._last += 1
        if self._options.numbers_itself:
            sequence = self._last
        self._kept.append(_Message(self._last, body, exchange, routing_key, properties, mandatory, key, sequence))
        if len(self._kept) == self._sent + 1:
            self._changed.notify_all()
        return self._last

    def _take(self) -> list[PureOutcome]:
        if self._ended is None:
            # The end is still to be heard, once the outcomes before it are taken.
            self._wake.clear()
        if not self._outcomes:
            if self._ended is not None:
                raise StatusError(*self._ended.args)
            return []
        taken, self._outcomes = self._outcomes, []
        return taken

    def _settle(self, outcome: PureOutcome) -> None:
        self._outcomes.append(outcome)
        self._settled.settle(outcome.first, outcome.last)

    def _confirm(self, first: int, last: int) -> None:
        if first == FILLER:
            self._passed = 0
            first += 1
        if first <= last:
            self._settle(PureOutcome(first, last, 0, ""))

    def _pass_over(self, place: int, code: int, reason: str) -> StatusError:
        """Settle a refused message and return the end of the stream. The next one begins with a filler for it.

        The broker has refused everything behind it, and takes it once the sequence has come again.
        """
        number = next((first for first, _ in self._numbering.translate(place, place)), None)
        if number is None or (number != FILLER and self._settled.is_settled(number, number)):
            return StatusError(INTERNAL, "the broker refused a message that waits for no answer", b"")
        if number == FILLER:
            text = f"a refused message cannot be passed over, which the default exchange has to take: {reason}"
            return StatusError(code, text, b"")
        self._settle(PureOutcome(number, number, code, reason))
        self._passed = number
        over = StatusError(UNAVAILABLE, "a refused message is passed over", b"")
        over.wait = Wait.NONE
        return over

    def _note_refused(self, first: int, last: int) -> None:
        if not self._options.producer or self._options.numbers_itself:
            return
        numbered = (message for message in self._kept if first <= message.number <= last and message.sequence)
        if lowest := min((message.sequence for message in numbered), default=0):
            self._refused = min(lowest, self._refused or lowest)

    def _drop_settled(self) -> None:
        while self._kept and self._kept[0].number <= self._settled.settled_through:
            self._kept.popleft()
            self._sent -= 1

    # ------------------------------------------------------------ the sending thread (grpcio's)

    def _requests(self, life: int) -> Iterator[bytes]:
        options = self._options
        opening = messaging_pb2.PublishOpen(vhost=options.vhost, producer=options.producer)
        opening.durability = messaging_pb2.Durability.Name(options.durability)  # type: ignore[assignment]
        yield messaging_pb2.PublishRequest(open=opening).SerializeToString()
        with self._changed:
            if not self._is_over(life):
                # grpcio asks for more once the opening went into a connection.
                self._lost = None
            passed = 0 if self._is_over(life) else self._passed
            if passed:
                self._numbering.send(FILLER)
        if passed:
            yield _encode([_Message(FILLER, b"", "", "", None, False, None, passed)])
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_over(life) or len(self._kept) > self._sent)
                if self._is_over(life):
                    return
                self._fail_behind()
                batch = self._next_batch()
            if batch:
                yield _encode(batch)

    def _is_over(self, life: int) -> bool:
        return self._is_closed or self._life != life

    def _fail_behind(self) -> None:
        """Resolve the messages that must not be sent now, because a lower sequence was refused before."""
        if not self._refused:
            return
        rest = list(islice(self._kept, self._sent, None))
        for message in rest:
            if not message.sequence or message.sequence < self._refused:
                continue
            if message.sequence == self._refused:
                # What comes behind it may be sent with it.
                break
            reason = f"sequence {self._refused} of this producer was refused: send it again first"
            self._settle(PureOutcome(message.number, message.number, FAILED_PRECONDITION, reason))
        is_settled = self._settled.is_settled
        left = [message for message in rest if not is_settled(message.number, message.number)]
        self._kept = deque([*islice(self._kept, self._sent), *left])
        self._drop_settled()
        self._changed.notify_all()
        self._wake.set()

    def _next_batch(self) -> list[_Message]:
        batch: list[_Message] = []
        size = 0
        for message in islice(self._kept, self._sent, self._sent + self._options.batch_max):
            size += len(message.body) + len(message.properties or b"") + len(message.key or b"")
            if batch and (size > BATCH_BYTES_MAX or not _follows(message, batch[-1])):
                break
            batch.append(message)
        for message in batch:
            self._numbering.send(message.number)
            if message.sequence == self._refused:
                self._refused = 0
        self._sent += len(batch)
        return batch

    # ------------------------------------------------------------ the reading thread

    def _run(self) -> None:
        while not self._is_closed:
            ended = self._read_stream()
            with self._changed:
                self._life += 1
                self._changed.notify_all()
                if self._is_closed:
                    return
                if not is_passing(ended.args[0]) or not self._options.reconnect:
                    self._ended, self._lost = ended, None
                    self._changed.notify_all()
                    self._wake.set()
                    return
                self._lost = None if ended.wait is Wait.NONE else ended.args[1]
                self._changed.wait_for(lambda: self._is_closed, seconds_until_retry(ended, self._backoff))

    def _read_stream(self) -> StatusError:
        """One stream from its opening to its end; what ended it."""
        with self._changed:
            if self._is_closed:
                return StatusError(UNAVAILABLE, "the publisher is closed", b"")
            self._numbering = Numbering()
            self._sent = 0
            self._kept = deque(
                message for message in self._kept if not self._settled.is_settled(message.number, message.number)
            )
            self._stream = self._streams.open(METHOD, self._requests(self._life))
        try:
            for payload in self._stream:
                refused = self._on_response(messaging_pb2.PublishResponse.FromString(payload))
                if refused is not None and refused.wait is Wait.NONE:
                    self._stream.cancel()
                    return refused
                if refused is not None:
                    return self._stream.give_up(refused)
        except StatusError as error:
            return error
        return StatusError(UNAVAILABLE, "the broker ended the publish stream", b"")

    def _on_response(self, response: messaging_pb2.PublishResponse) -> StatusError | None:
        """Take outcomes. Return why the stream is over, if the broker stored something not and may later or elsewhere.

        That is no outcome: it is sent again, with what comes behind it.
        """
        with self._changed:
            translate = self._numbering.translate
            for confirmed in response.confirmed:
                for first, last in translate(confirmed.first, confirmed.last):
                    self._confirm(first, last)
            over = None
            for low, high, code, reason in _refusals(response):
                if code == UNAVAILABLE:
                    over = StatusError(UNAVAILABLE, reason, b"")
                    break
                if self._options.numbers_itself:
                    over = self._pass_over(low, code, reason)
                    break
                for first, last in translate(low, high):
                    self._note_refused(first, last)
                    self._settle(PureOutcome(first, last, code, reason))
            self._drop_settled()
            if over is None:
                self._backoff.reset()
            self._changed.notify_all()
            self._wake.set()
        return over


def _refusals(response: messaging_pb2.PublishResponse) -> list[tuple[int, int, int, str]]:
    """Return the refused messages of a response in the order of the stream: the first, the last, code and reason."""
    returned = ((one.number, one.number, RETURNED, one.reason) for one in response.returned)
    rejected = ((one.first, one.last, one.code, one.reason) for one in response.rejected)
    return sorted([*returned, *rejected])


def _follows(message: _Message, before: _Message) -> bool:
    """Whether it can be in the batch of the one before: a batch says once what is mandatory, and its first sequence."""
    sequence = before.sequence + 1 if before.sequence else 0
    return message.mandatory == before.mandatory and message.sequence == sequence


def _refuse_types(bodies: Sequence[bytes], properties: bytes | None, key: bytes | None, sequence: int) -> None:
    for body in bodies:
        if not isinstance(body, bytes):
            raise TypeError(f"a body must be bytes, not {type(body).__name__}")
    for what, part in (("a message's key", key), ("encoded properties", properties)):
        if part is not None and not isinstance(part, bytes):
            raise TypeError(f"{what} must be bytes, not {type(part).__name__}")
    if not 0 <= sequence < 2**64:
        raise OverflowError(f"a sequence is {sequence}; it must fit into 64 bits")


def _refuse_long_names(exchange: str, routing_key: str, key: bytes | None) -> None:
    """Refuse names that are too long: the broker would end the stream, and with it fail other messages."""
    if key is not None and len(key) > KEY_BYTES_MAX:
        text = f"a message's key has {len(key)} bytes; at most {KEY_BYTES_MAX} fit"
        raise StatusError(INVALID_ARGUMENT, text, b"")
    for name in (exchange, routing_key):
        if not isinstance(name, str):
            raise TypeError(f"an exchange's name and a routing key must be str, not {type(name).__name__}")
        if len(name.encode()) > NAME_BYTES_MAX:
            text = f"an exchange's name or a routing key has {len(name.encode())} bytes; at most {NAME_BYTES_MAX} fit"
            raise StatusError(INVALID_ARGUMENT, text, b"")


def _encode(messages: list[_Message]) -> bytes:
    """One batch; what all messages share with the first is said once."""
    head = messages[0]
    request = messaging_pb2.PublishRequest()
    batch = request.batch
    batch.exchange, batch.routing_key, batch.mandatory = head.exchange, head.routing_key, head.mandatory
    batch.producer_sequence = head.sequence
    add = batch.messages.add
    for message in messages:
        out = add(body=message.body)
        if message.exchange != head.exchange:
            out.exchange = message.exchange
        if message.routing_key != head.routing_key:
            out.routing_key = message.routing_key
        if message.key is not None:
            out.key = message.key
        if message.properties is not None:
            out.properties.MergeFrom(message_pb2.Properties.FromString(message.properties))
    return request.SerializeToString(deterministic=True)
