"""Iterating over what a stream holds, for a thread and for a loop: the partitions together, each in its order.

Messages are taken in batches and handed out one by one. Ending the iteration ends the readers; the offsets that were
stored for the group in passing are stored once more before, by calls, so that they are there when it has ended.
"""

import asyncio
import logging
from asyncio import AbstractEventLoop, Event
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from select import POLLIN, poll
from types import TracebackType
from typing import Self

from penstock.client.dropped import close_when_dropped
from penstock.client.errors import PenstockError, from_status
from penstock.client.stream_messages import StreamMessage
from penstock.client.transport import ReaderPort

__all__ = ["AsyncStreamReader", "ReadingLimits", "StreamReader"]

_log = logging.getLogger("penstock")

BATCH_MAX = 256
# Long enough to cost nothing, short enough that a pending signal is handled soon.
WAIT_MS = 200


class ReadingLimits:
    """When an iteration ends by itself: after so many messages, or after so many seconds without one."""

    def __init__(self, count: int | None, idle_timeout: float | None, auto_store: bool) -> None:
        if count is not None and count < 0:
            raise ValueError(f"count is {count}; it must be at least 0")
        self.count = count
        self.idle_timeout = idle_timeout
        self.auto_store = auto_store


class Readers:
    """The readers of all partitions; which of them has something, and which are at their end."""

    def __init__(self, ports: Sequence[ReaderPort], error: type[Exception]) -> None:
        self.ports = ports
        self._error = error
        self._by_partition = {port.partition: port for port in ports}
        self.stored: dict[str, int] = {}
        close_when_dropped(self, ports)

    @property
    def active_partitions(self) -> list[str]:
        return [port.partition for port in self.ports if port.is_active]

    def unfinished(self) -> list[ReaderPort]:
        return [port for port in self.ports if not port.is_finished]

    def take(self, port: ReaderPort) -> Sequence[StreamMessage]:
        try:
            return port.take(BATCH_MAX)
        except self._error as error:
            raise from_status(*error.args) from error

    def store(self, message: StreamMessage) -> None:
        self.stored[message.partition] = message.offset
        self._by_partition[message.partition].store(message.offset)

    def close(self) -> None:
        for port in self.ports:
            port.close()


class StreamReader:
    """A reader of a stream. The end of an iteration closes it, unless a `with` block keeps it open."""

    def __init__(
        self,
        ports: Sequence[ReaderPort],
        error: type[Exception],
        limits: ReadingLimits,
        store: Callable[[str, int], None],
    ) -> None:
        self._readers = Readers(ports, error)
        self._store = store
        self._limits = limits
        self._left = limits.count
        self._is_entered = False
        self._is_closed = False
        self._batch: Iterator[StreamMessage] = iter(())

    @property
    def active_partitions(self) -> list[str]:
        """Return the partitions that this reader reads: all, or with `single_active` those where it is active."""
        return self._readers.active_partitions

    def store(self, message: StreamMessage) -> None:
        """Store the offset after the message for the group, without waiting."""
        self._readers.store(message)

    def __iter__(self) -> Iterator[StreamMessage]:
        done: StreamMessage | None = None
        try:
            while self._left is None or self._left > 0:
                message = next(self._batch, None)
                if message is None:
                    self._store_done(done)
                    done = None
                    batch = self._next_batch()
                    if batch is None:
                        return
                    self._batch = iter(batch)
                    continue
                if self._left is not None:
                    self._left -= 1
                yield message
                done = message
        finally:
            self._store_done(done)
            if not self._is_entered:
                self.close()

    def _store_done(self, done: StreamMessage | None) -> None:
        """Once a batch, which comes from one partition."""
        if done is not None and self._limits.auto_store and not self._is_closed:
            self._readers.store(done)

    def close(self) -> None:
        """End the reader; with `auto_store`, store first how far the group came."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            for partition, offset in self._readers.stored.items():
                with _unless_gone(partition):
                    self._store(partition, offset)
        finally:
            self._readers.close()

    def __enter__(self) -> Self:
        self._is_entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _next_batch(self) -> Sequence[StreamMessage] | None:
        """None when the iteration is at its end. Partitions take turns."""
        idle_ms_max = None if self._limits.idle_timeout is None else int(self._limits.idle_timeout * 1_000)
        idle_ms = 0
        while not self._is_closed and (ports := self._readers.unfinished()):
            for _ in range(len(ports)):
                batch = self._readers.take(ports[0])
                if batch:
                    self._readers.ports = [*self._readers.ports[1:], self._readers.ports[0]]
                    return batch
                ports = [*ports[1:], ports[0]]
            limit = WAIT_MS if idle_ms_max is None else max(0, min(WAIT_MS, idle_ms_max - idle_ms))
            if not _is_readable(ports, limit):
                idle_ms += max(1, limit)
                if idle_ms_max is not None and idle_ms >= idle_ms_max:
                    return None
        return None


class AsyncStreamReader:
    """The same for `async for`, on the loop that iterates. It asks the broker when it is first used."""

    def __init__(
        self,
        open_ports: Callable[[], Awaitable[Sequence[ReaderPort]]],
        error: type[Exception],
        limits: ReadingLimits,
        store: Callable[[str, int], Awaitable[None]],
        loop: AbstractEventLoop,
    ) -> None:
        self._open_ports = open_ports
        self._store = store
        self._error = error
        self._limits = limits
        self._left = limits.count
        self._loop = loop
        self._readers: Readers | None = None
        self._is_entered = False
        self._is_closed = False
        self._batch: Iterator[StreamMessage] = iter(())
        self._woken = Event()

    @property
    def active_partitions(self) -> list[str]:
        """Return the partitions that this reader reads: all, or with `single_active` those where it is active."""
        return [] if self._readers is None else self._readers.active_partitions

    def store(self, message: StreamMessage) -> None:
        """Store the offset after the message for the group, without waiting."""
        if self._readers is not None and not self._is_closed:
            self._readers.store(message)

    async def __aiter__(self) -> AsyncIterator[StreamMessage]:
        done: StreamMessage | None = None
        try:
            readers = await self._opened()
            while self._left is None or self._left > 0:
                message = next(self._batch, None)
                if message is None:
                    self._store_done(done)
                    done = None
                    # A stream that never runs dry must not keep the loop's other tasks waiting.
                    await asyncio.sleep(0)
                    batch = await self._next_batch(readers)
                    if batch is None:
                        return
                    self._batch = iter(batch)
                    continue
                if self._left is not None:
                    self._left -= 1
                yield message
                done = message
        finally:
            self._store_done(done)
            if not self._is_entered:
                await self.close()

    def _store_done(self, done: StreamMessage | None) -> None:
        """Once a batch, which comes from one partition."""
        if done is not None and self._limits.auto_store:
            self.store(done)

    async def close(self) -> None:
        """End the reader; with `auto_store`, store first how far the group came."""
        if self._is_closed:
            return
        self._is_closed = True
        self._woken.set()
        if self._readers is None:
            return
        try:
            for partition, offset in self._readers.stored.items():
                with _unless_gone(partition):
                    await self._store(partition, offset)
        finally:
            await self._loop.run_in_executor(None, self._readers.close)

    async def __aenter__(self) -> Self:
        await self._opened()
        self._is_entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _opened(self) -> Readers:
        if self._readers is None:
            self._readers = Readers(await self._open_ports(), self._error)
        return self._readers

    async def _next_batch(self, readers: Readers) -> Sequence[StreamMessage] | None:
        """None when the iteration is at its end. Partitions take turns."""
        while not self._is_closed and (ports := readers.unfinished()):
            for port in ports:
                batch = readers.take(port)
                if batch:
                    readers.ports = [*readers.ports[1:], readers.ports[0]]
                    return batch
            if not await self._is_woken(ports):
                return None
        return None

    async def _is_woken(self, ports: Sequence[ReaderPort]) -> bool:
        """Wait until something arrives or ends; return false when the reader was closed or idle for too long."""
        # Finished while it was asked: nothing would wake it.
        watched = [port.wake_fd for port in ports if not port.is_finished]
        if len(watched) < len(ports):
            return True
        self._woken.clear()
        for descriptor in watched:
            self._loop.add_reader(descriptor, self._woken.set)
        try:
            await asyncio.wait_for(self._woken.wait(), self._limits.idle_timeout)
        except TimeoutError:
            return False
        finally:
            for descriptor in watched:
                self._loop.remove_reader(descriptor)
        return not self._is_closed


@contextmanager
def _unless_gone(partition: str) -> Iterator[None]:
    """With its stream an offset goes, too; without a broker the group goes on further back, and sees messages again."""
    try:
        yield
    except PenstockError as error:
        _log.warning("the offset of a group was not stored for '%s': %s", partition, error)


def _is_readable(ports: Sequence[ReaderPort], timeout_ms: int) -> bool:
    watched = poll()
    for port in ports:
        watched.register(port.wake_fd, POLLIN)
    return bool(watched.poll(timeout_ms))
