"""Serves health and metrics. It answers from the first moment of a start, so that a probe can tell a broker that starts
from one that is stuck. It needs no credentials and tells no names but those of vhosts; where clients must show a
certificate, the figures are for those that do, and health is for all."""

from collections.abc import Callable
from ssl import SSLContext

from aiohttp import web

from penstock.frontends.http.metrics import exposition, make_registry
from penstock.frontends.ports import Node

METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class HttpFrontend:
    """Listens between `start` and `stop`."""

    def __init__(self, node: Node, reason_not_started: Callable[[], str], *, needs_certificate: bool = False) -> None:
        self._node = node
        self._needs_certificate = needs_certificate
        self._reason_not_started = reason_not_started
        self._registry = make_registry(node)
        self._runner: web.AppRunner | None = None
        self.address = ""

    async def start(self, host: str, port: int, tls: SSLContext | None = None) -> None:
        """Raises OSError when the address cannot be had."""
        self._runner = web.AppRunner(self.application(), access_log=None, handle_signals=False)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=tls, reuse_address=True)
        try:
            await site.start()
        except OSError:
            await self._runner.cleanup()
            raise
        found = self._runner.addresses[0]
        shown = f"[{found[0]}]" if ":" in found[0] else found[0]
        self.address = f"{shown}:{found[1]}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def application(self) -> web.Application:
        application = web.Application(client_max_size=1_024)
        application.router.add_get("/health/startup", self._startup)
        application.router.add_get("/health/ready", self._ready)
        application.router.add_get("/health/live", self._live)
        application.router.add_get("/metrics", self._metrics)
        return application

    async def _startup(self, _: web.Request) -> web.Response:
        return _health(self._reason_not_started())

    async def _ready(self, _: web.Request) -> web.Response:
        return _health(self._node.reason_not_ready())

    async def _live(self, _: web.Request) -> web.Response:
        return _health(self._node.reason_not_live())

    async def _metrics(self, request: web.Request) -> web.Response:
        if self._needs_certificate and not request.get_extra_info("peercert"):
            raise web.HTTPForbidden(text="show a client certificate that tls_client_ca signed\n")
        content = exposition(self._registry)
        return web.Response(body=content, headers={"Content-Type": METRICS_CONTENT_TYPE})


def _health(reason: str) -> web.Response:
    if reason:
        return web.json_response({"status": "unavailable", "reason": reason}, status=503)
    return web.json_response({"status": "ok"})
