"""Bounds on connections to health and metrics: their number, and their time without a request.

This module knows nothing of the requests.
"""

import asyncio
from collections.abc import Callable

from aiohttp import web

CONNECTIONS_MAX = 512
"""Probes and scrapers are few, and each connection takes a file that logs may need."""
FIRST_REQUEST_SECONDS = 10.0
KEEPALIVE_SECONDS = 75.0


class Guard:
    """Makes protocols for a listening socket. Invariant: `_waiting` are those without a request whose time runs."""

    def __init__(
        self,
        make: Callable[[], web.RequestHandler],
        *,
        connections_max: int = CONNECTIONS_MAX,
        first_request_seconds: float = FIRST_REQUEST_SECONDS,
    ) -> None:
        self._make = make
        self._connections_max = connections_max
        self._seconds = first_request_seconds
        self._waiting: dict[object, asyncio.TimerHandle] = {}

    def protocol(self, open_count: int) -> asyncio.BaseProtocol:
        """`open_count` is how many there are."""
        if open_count >= self._connections_max:
            return _Refused()
        handler = self._make()
        self._waiting[handler] = asyncio.get_running_loop().call_later(self._seconds, self._close, handler)
        return handler

    def note(self, request: web.Request) -> None:
        """Keep a connection that has sent a request."""
        timer = self._waiting.pop(request.protocol, None)
        if timer is not None:
            timer.cancel()

    def _close(self, handler: web.RequestHandler) -> None:
        self._waiting.pop(handler, None)
        if handler.transport is not None:
            handler.transport.abort()


class _Refused(asyncio.Protocol):
    """A connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
