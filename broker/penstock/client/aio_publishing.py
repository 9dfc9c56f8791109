"""Publishing from a loop: a future for each message, resolved in ranges when the publisher's descriptor wakes the loop.

Messages published in one turn of the loop go to the publisher at its end, or sooner if they are many, so that the
broker works while the loop does. It goes in runs of messages to one address: a call and a batch for many. All runs on
the loop's thread, so numbers come in the order of the calls and no lock is needed.

When no outcome comes for the time limit although some are due, everything that waits fails, and the publisher is given
up. A named publisher sends nothing past a message that failed, for whatever cause, before that was sent again.
"""

import asyncio
import logging
from asyncio import AbstractEventLoop, Future, TimerHandle
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from penstock.client.closing import Grace, silence
from penstock.client.errors import CANCELLED, FAILED_PRECONDITION, MESSAGE_REFUSALS, UNAVAILABLE, from_status
from penstock.client.failed_order import FailedOrder
from penstock.client.outcomes import PendingFutures
from penstock.client.transport import Outcome, PublisherOptions, PublisherPort

__all__ = ["AsyncPublishing"]

_log = logging.getLogger("penstock")

# How often a close looks whether the connection was lost meanwhile.
LOOK_SECONDS = 0.1
# A run of this many messages does not wait for the end of the loop's turn; each costs the broker a wake-up.
RUN_SENT = 500

# Exchange, routing key, properties, mandatory; of messages with keys: key and sequence.
Address: TypeAlias = "tuple[Any, ...]"


class _Run(NamedTuple):
    """Messages that follow each other and differ in nothing but the body."""

    address: Address
    bodies: list[bytes]
    futures: "list[Future[None]]"


class AsyncPublishing:
    """Publishers, one after another: when one ended for good, the next message opens a new one.

    Invariants: `_runs` holds what no publisher has yet, in order; `_bodies` and `_futures` are its last run's; at most
    `in_flight_max` messages are with the publisher, so that handing it more never blocks the loop.
    """

    def __init__(
        self,
        open_port: Callable[[], PublisherPort],
        rpc_error: type[Exception],
        options: PublisherOptions,
        timeout: float,
        loop: AbstractEventLoop,
    ) -> None:
        """`options` are those of the ports; without an outcome for `timeout` seconds what waits fails."""
        self._open_port = open_port
        self._rpc_error = rpc_error
        self._in_flight_max = options.in_flight_max
        self._timeout = timeout
        self._loop = loop
        self._failed_order = FailedOrder() if options.producer else None
        self._timer: TimerHandle | None = None
        self._heard_at = 0.0
        # Of a named publisher: the sequence behind each number of the port that has no outcome.
        self._sequences: dict[int, int] = {}
        self._create_future = _future_maker(loop)
        self._port: PublisherPort | None = None
        self._is_watched = False
        self._pending = PendingFutures()
        self._runs: deque[_Run] = deque()
        self._address: Address | None = None
        self._bodies: list[bytes] = []
        self._futures: list[Future[None]] = []
        self._is_due = False
        self._closing: set[Future[None]] = set()

    def publish(
        self,
        body: bytes,
        exchange: str,
        routing_key: str,
        properties: bytes | None,
        mandatory: bool,
        *keyed: bytes | int | None,
    ) -> "Future[None]":
        """`keyed` is a key and a sequence, for ports that take them."""
        if type(body) is not bytes:
            raise TypeError(f"a body must be bytes, not {type(body).__name__}")
        address = (exchange, routing_key, properties, mandatory, *keyed)
        # A producer's messages have a sequence each, also one that is sent twice.
        if address != self._address or self._failed_order is not None:
            self._begin_run(address)
            if self._failed_order is not None:
                self._failed_order.sent(_sequence(address))
        future = self._create_future()
        bodies = self._bodies
        bodies.append(body)
        self._futures.append(future)
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._send)
        elif len(bodies) == RUN_SENT:
            self._send()
        return future

    def refused(self, sequence: int) -> "Future[None] | None":
        """Return a failed future if a lower sequence of a named publisher has failed.

        This one must not be sent then.
        """
        refusal = self._failed_order.refusal(sequence) if self._failed_order is not None else None
        if refusal is None:
            return None
        future = self._create_future()
        _fail(future, refusal)
        return future

    async def close(self, grace: Grace) -> None:
        """Wait for the outcomes of published messages, as long as `grace` allows."""
        self._send()
        waiting = [*self._pending.waiting(), *(future for run in self._runs for future in run.futures)]
        while waiting and (left := grace.confirms_left(self._lost is not None)):
            _, pending = await asyncio.wait(waiting, timeout=min(left, LOOK_SECONDS))
            waiting = list(pending)
        error = (CANCELLED, "the connection was closed before the broker answered", b"")
        if self._lost is not None:
            text = f"the connection to the broker is lost ({self._lost}); it was closed before the broker answered"
            error = (UNAVAILABLE, text, b"")
        if waiting:
            _log.warning("closed with unconfirmed messages: %d; %s", len(waiting), error[1])
        self._retire(error, grace)
        self._fail_waiting(error)
        if self._timer is not None:
            self._timer.cancel()
        if self._closing:
            await asyncio.wait(self._closing)

    @property
    def _lost(self) -> str | None:
        return self._port.lost if self._port is not None else None

    def _begin_run(self, address: Address) -> None:
        self._address = address
        self._bodies, self._futures = [], []
        self._runs.append(_Run(address, self._bodies, self._futures))

    def _send(self) -> None:
        """Send waiting messages, as many as may be in flight; outcomes make space for the others."""
        if not len(self._pending):
            self._heard_at = self._loop.time()
        while self._runs:
            room = self._in_flight_max - len(self._pending)
            if room <= 0:
                break
            run = self._runs[0]
            self._send_run(run, room)
            if not run.bodies and self._runs and self._runs[0] is run:
                self._runs.popleft()
        else:
            self._address = None
            self._is_due = False
        if self._timer is None and len(self._pending):
            self._timer = self._loop.call_later(self._timeout, self._on_timer)

    def _on_timer(self) -> None:
        """Fails what waits when nothing at all was heard for the time limit; else looks again when that may be so."""
        self._timer = None
        if not len(self._pending):
            return
        due = self._heard_at + self._timeout
        if self._loop.time() < due:
            self._timer = self._loop.call_at(due, self._on_timer)
            return
        error = silence(self._lost, self._timeout)
        self._retire(error)
        self._fail_waiting(error)

    def _send_run(self, run: _Run, room: int) -> None:
        count = min(room, len(run.bodies))
        is_new = self._port is None
        port = self._watched_port()
        try:
            port.publish_many(run.bodies[:count] if count < len(run.bodies) else run.bodies, *run.address)
        except self._rpc_error as error:
            code, message, details = error.args
            if code in MESSAGE_REFUSALS:
                count = self._take_over(run, port.publish_many([]) - self._pending.last)
                _fail(run.futures[count], (code, message, details))
                if self._failed_order is not None:
                    self._failed_order.fail(_sequence(run.address))
                    self._fail_behind()
                    return
                count += 1
            else:
                # It had ended and took nothing. A new one may take it; if not even that does, why is the answer.
                self._retire((code, message, details))
                if not is_new:
                    return
                if self._failed_order is not None:
                    self._fail_waiting((code, message, details))
                    return
                count = len(run.futures)
                for future in run.futures:
                    _fail(future, (code, message, details))
        else:
            self._take_over(run, count)
        del run.bodies[:count]
        del run.futures[:count]

    def _take_over(self, run: _Run, count: int) -> int:
        """Record that the publisher has the first `count` messages of the run."""
        self._pending.extend(run.futures[:count])
        if self._failed_order is not None and count:
            self._sequences[self._pending.last] = _sequence(run.address)
        return count

    def _watched_port(self) -> PublisherPort:
        port = self._port
        if port is None:
            port = self._port = self._open_port()
            self._pending = PendingFutures()
            self._sequences = {}
        if not self._is_watched:
            self._is_watched = True
            self._loop.add_reader(port.wake_fd, self._on_wake)
        return port

    def _on_wake(self) -> None:
        if self._port is None:
            return
        try:
            outcomes = self._port.take()
        except self._rpc_error as error:
            code, message, details = error.args
            self._retire((code, message, details))
        else:
            self._heard_at = self._loop.time()
            self._apply(outcomes)
            if not outcomes:
                # A publisher that ended with nothing to tell stays readable: watch it again with the next message.
                self._unwatch(self._port)
        if self._runs:
            self._send()

    def _unwatch(self, port: PublisherPort) -> None:
        if self._is_watched:
            self._is_watched = False
            self._loop.remove_reader(port.wake_fd)

    def _apply(self, outcomes: Sequence[Outcome]) -> None:
        self._pending.apply(outcomes)
        if self._failed_order is None:
            return
        failed = False
        for outcome in outcomes:
            for number in range(outcome.first, outcome.last + 1):
                sequence = self._sequences.pop(number, 0)
                if outcome.code and sequence:
                    self._failed_order.fail(sequence)
                    failed = True
        if failed:
            self._fail_behind()

    def _fail_behind(self) -> None:
        """Fail the messages that wait behind a failed one of a named publisher: they must not be sent before it."""
        if self._failed_order is None:
            return
        text = f"not sent: sequence {self._failed_order.first} failed before it; send both again, in their order"
        self._fail_waiting((FAILED_PRECONDITION, text, b""))

    def _retire(self, error: tuple[int, str, bytes], grace: Grace | None = None) -> None:
        """Retire a publisher that has ended.

        Messages without an outcome fail with `error`, unless it has an outcome for them now.
        """
        port, self._port = self._port, None
        if port is None:
            return
        self._unwatch(port)
        # If it raises, it says again what `error` says.
        with suppress(self._rpc_error):
            self._apply(port.take())
        self._pending.fail_all(error)
        self._pending = PendingFutures()
        if self._failed_order is not None and self._sequences:
            # It is not known whether these are stored: they count as failed.
            for sequence in self._sequences.values():
                self._failed_order.fail(sequence)
            self._sequences = {}
            self._fail_behind()
        left = grace or Grace()
        closing = self._loop.run_in_executor(None, lambda: port.close(left.hang_up_ms()))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _fail_waiting(self, error: tuple[int, str, bytes]) -> None:
        for run in self._runs:
            for future in run.futures:
                if self._failed_order is not None and not future.done():
                    self._failed_order.fail(_sequence(run.address))
                _fail(future, error)
        self._runs.clear()
        self._address = None
        self._is_due = False


def _sequence(address: Address) -> int:
    """Return the sequence of a named publisher's message, which follows its key."""
    sequence: int = address[-1]
    return sequence


def _future_maker(loop: AbstractEventLoop) -> "Callable[[], Future[None]]":
    """Return the loop's `create_future`, without the Python function in which asyncio's own loops wrap this call."""
    if type(loop).create_future is asyncio.BaseEventLoop.create_future:
        return partial(Future, loop=loop)
    return loop.create_future


def _fail(future: "Future[None]", error: tuple[int, str, bytes]) -> None:
    if not future.done():
        future.set_exception(from_status(*error))
