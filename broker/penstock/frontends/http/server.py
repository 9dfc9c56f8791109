"""Serves health and metrics.

It answers from the first moment of a start, so that a probe can tell a broker that starts from one that is stuck.
Health needs no credentials. Metrics need a token where one is set, and a client certificate where clients must show
one.
"""

import asyncio
from collections.abc import Callable
from ssl import SSLContext

from aiohttp import web
from aiohttp.typedefs import Handler

from penstock.frontends.http.guard import FIRST_REQUEST_SECONDS, KEEPALIVE_SECONDS, Guard
from penstock.frontends.http.metrics import MetricsPage
from penstock.services.ports import Node

METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class HttpFrontend:
    """Listens between `start` and `stop`."""

    def __init__(
        self, node: Node, reason_not_started: Callable[[], str], page: MetricsPage, *, needs_certificate: bool = False
    ) -> None:
        self._node = node
        self._needs_certificate = needs_certificate
        self._reason_not_started = reason_not_started
        self._page = page
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._guard: Guard | None = None
        self.address = ""

    async def start(self, host: str, port: int, tls: SSLContext | None = None) -> None:
        """Start to listen. Raises OSError when the address is not available."""
        self._runner = web.AppRunner(
            self.application(), access_log=None, handle_signals=False, keepalive_timeout=KEEPALIVE_SECONDS
        )
        await self._runner.setup()
        handlers = self._runner.server
        assert handlers is not None
        guard = self._guard = Guard(handlers)
        try:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: guard.protocol(len(handlers.connections)),
                host,
                port,
                ssl=tls,
                ssl_handshake_timeout=FIRST_REQUEST_SECONDS if tls is not None else None,
                reuse_address=True,
            )
        except OSError:
            await self._runner.cleanup()
            raise
        found = self._server.sockets[0].getsockname()
        shown = f"[{found[0]}]" if ":" in found[0] else found[0]
        self.address = f"{shown}:{found[1]}"

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def application(self) -> web.Application:
        application = web.Application(client_max_size=1_024, middlewares=[self._noted])
        application.on_response_prepare.append(_unnamed)
        application.router.add_get("/", _index)
        application.router.add_get("/health/startup", self._startup)
        application.router.add_get("/health/ready", self._ready)
        application.router.add_get("/health/live", self._live)
        application.router.add_get("/metrics", self._metrics)
        return application

    @web.middleware
    async def _noted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._guard is not None:
            self._guard.note(request)
        return await handler(request)

    async def _startup(self, _: web.Request) -> web.Response:
        return _health(self._reason_not_started())

    async def _ready(self, _: web.Request) -> web.Response:
        return _health(self._node.reason_not_ready())

    async def _live(self, _: web.Request) -> web.Response:
        return _health(self._node.reason_not_live())

    async def _metrics(self, request: web.Request) -> web.Response:
        if self._needs_certificate and not request.get_extra_info("peercert"):
            raise web.HTTPForbidden(text="present a client certificate signed by tls_client_ca\n")
        if not self._page.admits(request.headers.get("Authorization", "")):
            raise web.HTTPUnauthorized(text="send metrics_token as a bearer token\n")
        content = self._page.content()
        return web.Response(body=content, headers={"Content-Type": METRICS_CONTENT_TYPE})


async def _index(_: web.Request) -> web.Response:
    return web.Response(text="/health/startup\n/health/ready\n/health/live\n/metrics\n")


async def _unnamed(_: web.Request, response: web.StreamResponse) -> None:
    """Do not tell which versions of Python and of the library run here."""
    response.headers.popall("Server", None)


def _health(reason: str) -> web.Response:
    if reason:
        return web.json_response({"status": "unavailable", "reason": reason}, status=503)
    return web.json_response({"status": "ok"})
