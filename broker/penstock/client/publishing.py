"""Publishing from threads: each caller waits for its own confirm while one of them reads the outcomes for all.

Numbers are given under one lock, so that a call's numbers are known ranges. The first that waits reads; nothing wakes a
thread to be told what it could have read itself. Waiting for confirms and for room ends after the time limit, counted
while no outcome at all arrives: a port that was handed more than it has room for would wait for ever.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from threading import Condition, Lock
from typing import Any, TypeAlias

from penstock.client.closing import Grace, no_room, silence
from penstock.client.dropped import close_when_dropped
from penstock.client.errors import MESSAGE_REFUSALS, PenstockError, from_status
from penstock.client.outcomes import Outcomes
from penstock.client.transport import IN_FLIGHT_MAX, Outcome, PublisherPort

__all__ = ["Keyed", "NothingSentError", "Publishing", "publish_anew"]

_log = logging.getLogger("penstock")

# Long enough to cost nothing, short enough that a pending signal is handled soon.
WAIT_MS = 200
CHUNK = 1_000
NEVER = 2**64

# A message's key, and its producer's sequence or 0.
Keyed: TypeAlias = tuple[bytes | None, int]


class NothingSentError(Exception):
    """The publisher had ended before the message was queued: another one may take it. `args` is the refusal."""


def publish_anew(find: "Callable[[], Publishing]", publish: "Callable[[Publishing], None]") -> None:
    """Publish, and once more with another publisher if the first one had ended before the message was queued."""
    try:
        publish(find())
    except NothingSentError:
        # Whether a new one can be had, the broker says now.
        try:
            publish(find())
        except NothingSentError as ended:
            raise ended.args[0] from ended


class Publishing:
    """One publisher, until the broker ends it for good; then a new one has to be made."""

    def __init__(
        self, port: PublisherPort, rpc_error: type[Exception], timeout_ms: int, in_flight_max: int = IN_FLIGHT_MAX
    ) -> None:
        """`in_flight_max` is the port's."""
        self._port = port
        self._rpc_error = rpc_error
        self._timeout_ms = timeout_ms
        self._in_flight_max = in_flight_max
        self._numbering = Lock()
        self._changed = Condition(Lock())
        self._reading = False
        # How often outcomes arrived.
        self._heard_count = 0
        self._outcomes = Outcomes()
        self._ended: tuple[int, str, bytes] | None = None
        # The numbers that the last call found refused when all of its messages had an outcome, for a caller who has the
        # publisher for himself.
        self.refused: list[int] = []
        self._is_closed = False
        close_when_dropped(self, [port])

    @property
    def is_ended(self) -> bool:
        return self._ended is not None

    @property
    def is_at_work(self) -> bool:
        """Whether the broker can still answer: else its outcomes may be the publisher's own, for what had none."""
        return self._ended is None and not self._port.is_ended

    @property
    def last_number(self) -> int:
        """The last number that was given out; numbers count from 1, without gaps."""
        return self._port.publish_many([])

    def publish(
        self,
        body: bytes,
        exchange: str,
        routing_key: str,
        properties: bytes | None,
        mandatory: bool,
        keyed: Keyed | None = None,
    ) -> None:
        """Publish a message and return when the broker has confirmed it; otherwise raise the broker's error.

        `keyed` is for ports that support it.
        """
        number = self._queue(body, (exchange, routing_key, properties, mandatory, *(keyed or ())))
        self._await(number, number)
        self._raise_failures([(number, number)])

    def publish_many(
        self,
        bodies: Iterable[bytes],
        exchange: str,
        routing_key: str,
        properties: bytes | None,
        mandatory: bool,
        keyed: Keyed | None = None,
    ) -> int:
        """Publish many messages and return their number. The first refusal is raised once all have an outcome."""
        address = (exchange, routing_key, properties, mandatory)
        spans: list[tuple[int, int]] = []
        count = 0
        try:
            for chunk in _chunks(bodies, min(CHUNK, self._in_flight_max)):
                last = self._queue_chunk(chunk, (*address, *_advanced(keyed, count)))
                _extend(spans, last - len(chunk) + 1, last)
                count += len(chunk)
        except self._rpc_error as error:
            raise self._refused(error) from error
        for first, last in spans:
            self._await(first, last)
        self._raise_failures(spans)
        return count

    def publish_keyed(
        self, messages: Iterable[tuple[bytes | None, bytes]], address: tuple[Any, ...], sequence: int
    ) -> int:
        """Publish many messages with a key each. `sequence` is the first one's, or 0."""
        spans: list[tuple[int, int]] = []
        count = 0
        for key, body in messages:
            try:
                number = self._queue(body, (*address, key, sequence + count if sequence else 0))
            except NothingSentError as ended:
                raise ended.args[0] from ended
            _extend(spans, number, number)
            count += 1
        for first, last in spans:
            self._await(first, last)
        self._raise_failures(spans)
        return count

    def close(self, grace: Grace | None = None) -> None:
        """Wait for confirms as long as `grace` allows, and not at all without it. Report missing confirms."""
        if self._is_closed:
            return
        self._is_closed = True
        if grace is not None and not self.is_ended and not self._flush(grace):
            self._tell_unconfirmed()
        self._port.close((grace or Grace()).hang_up_ms())

    def _flush(self, grace: Grace) -> bool:
        """In steps, as the connection may be lost meanwhile; whether everything has an outcome."""
        while True:
            left_ms = int(1_000 * grace.confirms_left(self._port.lost is not None))
            if self._port.flush(min(left_ms, WAIT_MS)):
                return True
            if not left_ms or self._port.is_ended:
                return False

    def _tell_unconfirmed(self) -> None:
        """Warn of unconfirmed messages when closing; a caller that waits for confirms has got their errors."""
        lost, last = self._port.lost, self._port.publish_many([])
        # What ended it for good is told to those who wait.
        with suppress(self._rpc_error):
            for outcome in self._port.take():
                self._outcomes.apply(outcome)
        if count := self._outcomes.count_unconfirmed(last):
            why = "the broker did not confirm in time" if lost is None else f"the connection is lost ({lost})"
            _log.warning("closed with unconfirmed messages: %d; %s; they may have been stored", count, why)

    def _queue_chunk(self, chunk: list[bytes], address: tuple[Any, ...]) -> int:
        """Wait until there is room for the whole chunk, and return the number of its last message."""
        quiet_ms = 0
        while True:
            with self._numbering:
                if self._count_unconfirmed() + len(chunk) <= self._in_flight_max:
                    return self._port.publish_many(chunk, *address)
            quiet_ms = self._wait_for_room(quiet_ms)

    def _count_unconfirmed(self) -> int:
        """Of the messages that the port has; it knows of as many outcomes, or more."""
        last = self._port.publish_many([])
        with self._changed:
            return self._outcomes.count_unconfirmed(last)

    def _wait_for_room(self, quiet_ms: int) -> int:
        """Return for how many milliseconds no outcome has arrived. Raise when that exceeds the timeout."""
        if quiet_ms >= self._timeout_ms:
            raise from_status(*no_room(self._port.lost, self._timeout_ms / 1_000))
        return 0 if self._read(NEVER, NEVER) else quiet_ms + WAIT_MS

    def _queue(self, body: bytes, address: tuple[Any, ...]) -> int:
        quiet_ms = 0
        while True:
            try:
                with self._numbering:
                    number = self._port.publish(body, *address)
                if number:
                    return number
                quiet_ms = self._wait_for_room(quiet_ms)
            except self._rpc_error as error:
                refusal = self._refused(error)
                if self.is_ended:
                    raise NothingSentError(refusal) from error
                raise refusal from error

    def _refused(self, error: Exception) -> PenstockError:
        """Return the refusal of one message, or of all that would follow it."""
        return from_status(*error.args) if error.args[0] in MESSAGE_REFUSALS else self._end(error)

    def _await(self, first: int, last: int) -> None:
        """Wait until first to last have outcomes. The time limit counts time in which nothing at all arrives."""
        quiet_ms = 0
        while not self._outcomes.is_settled(first, last):
            if self._ended is not None:
                raise from_status(*self._ended)
            if quiet_ms >= self._timeout_ms:
                raise from_status(*silence(self._port.lost, self._timeout_ms / 1_000))
            try:
                quiet_ms = 0 if self._read(first, last) else quiet_ms + WAIT_MS
            except self._rpc_error as error:
                raise self._end(error) from error

    def _read(self, first: int, last: int) -> bool:
        """Read outcomes, or wait for the thread that reads them, unless first to last have theirs.

        Return whether something arrived. Waiting threads are not woken when the reading thread received nothing.
        """
        outcomes: Sequence[Outcome] = []
        with self._changed:
            if self._outcomes.is_settled(first, last):
                return True
            if self._reading:
                before = self._heard_count
                self._changed.wait(WAIT_MS / 1000)
                return self._heard_count != before
            self._reading = True
        try:
            outcomes = self._port.wait(WAIT_MS)
        finally:
            with self._changed:
                for outcome in outcomes:
                    self._outcomes.apply(outcome)
                self._heard_count += bool(outcomes)
                self._reading = False
                self._changed.notify_all()
        return bool(outcomes)

    def _raise_failures(self, spans: list[tuple[int, int]]) -> None:
        with self._changed:
            failures = [failure for first, last in spans for failure in self._outcomes.take_failures(first, last)]
        self.refused = [number for number, _, _ in failures]
        if not failures:
            return
        _, code, reason = failures[0]
        error = from_status(code, reason)
        count = sum(last - first + 1 for first, last in spans)
        if count > 1:
            error.add_note(f"{len(failures)} of {count} messages were not confirmed; this is the first")
        raise error

    def _end(self, error: Exception) -> PenstockError:
        code, message, details = error.args
        ended = (int(code), str(message), bytes(details))
        with self._changed:
            self._ended = ended
            self._changed.notify_all()
        return from_status(*ended)


def _advanced(keyed: Keyed | None, count: int) -> tuple[()] | Keyed:
    """Return the options that belong to the messages after the first `count`."""
    if keyed is None:
        return ()
    key, sequence = keyed
    return key, sequence + count if sequence else 0


def _chunks(bodies: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    if isinstance(bodies, list):
        for start in range(0, len(bodies), size):
            yield bodies[start : start + size]
        return
    rest = iter(bodies)
    while chunk := list(islice(rest, size)):
        yield chunk


def _extend(spans: list[tuple[int, int]], first: int, last: int) -> None:
    if spans and spans[-1][1] == first - 1:
        spans[-1] = (spans[-1][0], last)
    else:
        spans.append((first, last))
