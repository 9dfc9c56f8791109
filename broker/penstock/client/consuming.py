"""Iterating over what a queue delivers, for a thread and for a loop.

Messages are taken in batches and handed out one by one, so that the cost of a wake-up is shared; between two messages
of a batch a thread runs no code of the client. Ending the iteration ends the consumer: what was taken and not settled
returns to its place in the queue.
"""

from asyncio import AbstractEventLoop, Future, sleep
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import chain
from types import TracebackType
from typing import Self

from penstock.client.closing import Grace
from penstock.client.errors import from_status
from penstock.client.messages import Message
from penstock.client.transport import ConsumerPort, check_prefetch

__all__ = ["AsyncConsumption", "Consumption"]

# Few enough that making them starts no garbage collection (700 new objects do) and that they stay in the cache.
BATCH_MAX = 256
# Long enough to cost nothing, short enough that a pending signal is handled soon.
WAIT_MS = 200


class Consumption:
    """An iterator over the messages of a consumer. `idle_timeout` seconds without a message end an iteration.

    The end of an iteration ends the consumer, unless a `with` says how long it lives.
    """

    def __init__(self, port: ConsumerPort, rpc_error: type[Exception], idle_timeout: float | None) -> None:
        self._port = port
        self._rpc_error = rpc_error
        self._idle_ms_max = None if idle_timeout is None else int(idle_timeout * 1000)
        self._is_closed = False
        self._is_hung_up = False
        self._is_entered = False
        self._batch: Iterator[Message] = iter(())

    @property
    def consumer_tag(self) -> str:
        """The tag that the broker knows the consumer by."""
        return self._port.consumer_tag

    def flow(self, prefetch: int) -> None:
        """Change the prefetch; 0 pauses the consumer."""
        check_prefetch(prefetch, 0)
        self._port.flow(prefetch)

    def __iter__(self) -> Iterator[Message]:
        return chain.from_iterable(self._batches())

    def _batches(self) -> Iterator[Iterator[Message]]:
        try:
            idle_ms = 0
            while not self._is_closed:
                # What this iteration leaves of a batch, the next one finds.
                yield self._batch
                messages = self._wait(idle_ms)
                if messages:
                    idle_ms = 0
                    self._batch = iter(messages)
                    continue
                idle_ms += WAIT_MS
                if self._idle_ms_max is not None and idle_ms >= self._idle_ms_max:
                    return
        finally:
            if not self._is_entered:
                self.close()

    def begin_close(self) -> None:
        """End the iteration and let the stream end; `close` waits for that."""
        if not self._is_closed:
            self._is_closed = True
            self._port.begin_close()

    def close(self, grace: Grace | None = None) -> None:
        """End the consumer; messages that were not acknowledged return to the queue."""
        self.begin_close()
        if not self._is_hung_up:
            self._is_hung_up = True
            self._port.close((grace or Grace()).hang_up_ms())

    def __enter__(self) -> Self:
        self._is_entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _wait(self, idle_ms: int) -> Sequence[Message]:
        limit = WAIT_MS if self._idle_ms_max is None else max(0, min(WAIT_MS, self._idle_ms_max - idle_ms))
        try:
            return self._port.wait(BATCH_MAX, limit)
        except self._rpc_error as error:
            if self._is_closed:
                return ()
            raise from_status(*error.args) from error


class AsyncConsumption:
    """The same for `async for`, on the loop that iterates."""

    def __init__(
        self,
        port: ConsumerPort,
        rpc_error: type[Exception],
        idle_timeout: float | None,
        loop: AbstractEventLoop,
    ) -> None:
        self._port = port
        self._rpc_error = rpc_error
        self._idle_timeout = idle_timeout
        self._loop = loop
        self._is_closed = False
        self._is_hung_up = False
        self._wakening: Future[bool] | None = None
        self._watched: int | None = None
        self._is_entered = False
        self._batch: Iterator[Message] = iter(())

    @property
    def consumer_tag(self) -> str:
        """The tag that the broker knows the consumer by."""
        return self._port.consumer_tag

    def flow(self, prefetch: int) -> None:
        """Change the prefetch; 0 pauses the consumer."""
        check_prefetch(prefetch, 0)
        self._port.flow(prefetch)

    async def __aiter__(self) -> AsyncIterator[Message]:
        try:
            while not self._is_closed:
                for message in self._batch:
                    yield message
                # A queue that never runs dry must not keep the loop's other tasks waiting.
                await sleep(0)
                if self._is_closed:
                    return
                messages = self._take()
                self._batch = iter(messages)
                if not messages and not await self._is_woken():
                    return
        finally:
            if not self._is_entered:
                await self.close()

    def begin_close(self) -> None:
        """End the iteration and let the stream end; `close` waits for that."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._wakening is not None and not self._wakening.done():
            self._wakening.set_result(False)
        # Before the descriptor is closed: its number may soon be somebody else's.
        self._unwatch()
        self._port.begin_close()

    async def close(self, grace: Grace | None = None) -> None:
        """End the consumer; messages that were not acknowledged return to the queue."""
        self.begin_close()
        if not self._is_hung_up:
            self._is_hung_up = True
            left = grace or Grace()
            # What is left counts when a thread is free for it.
            await self._loop.run_in_executor(None, lambda: self._port.close(left.hang_up_ms()))

    async def __aenter__(self) -> Self:
        self._is_entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _take(self) -> Sequence[Message]:
        try:
            return self._port.take(BATCH_MAX)
        except self._rpc_error as error:
            raise from_status(*error.args) from error

    async def _is_woken(self) -> bool:
        """Wait until something arrives; return false when the consumption was closed or idle for too long."""
        wakening: Future[bool] = self._loop.create_future()
        self._wakening = wakening
        # The reader is there only while somebody waits: the descriptor stays readable while messages wait to be taken.
        self._watched = self._port.wake_fd
        self._loop.add_reader(self._watched, _settle, wakening, True)
        timer = None
        if self._idle_timeout is not None:
            timer = self._loop.call_later(self._idle_timeout, _settle, wakening, False)
        try:
            return await wakening
        finally:
            self._unwatch()
            if timer is not None:
                timer.cancel()

    def _unwatch(self) -> None:
        if self._watched is not None:
            self._loop.remove_reader(self._watched)
            self._watched = None


def _settle(wakening: "Future[bool]", is_readable: bool) -> None:
    if not wakening.done():
        wakening.set_result(is_readable)
