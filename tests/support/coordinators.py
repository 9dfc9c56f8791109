"""Coordinators for tests, with servers in processes and threads of their own, and a proxy that loses messages."""

import asyncio
import contextlib
import shutil
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import aiohttp
from aiohttp import web

from support.kubernetes_api import KubernetesApi
from support.waiting import eventually

HAS_ETCD: Final = shutil.which("etcd") is not None


@contextmanager
def etcd_server(directory: Path) -> Iterator[str]:
    """Run etcd, and yield its address."""
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    command = ["etcd", "--data-dir", str(directory), "--unsafe-no-fsync", "--logger", "zap", "--log-level", "error"]
    command += ["--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer]
    command += ["--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: _accepts(client), True, 60)
        yield client
    finally:
        process.kill()
        process.wait()


@contextmanager
def served(make: Callable[[], web.Application]) -> Iterator[str]:
    """Serve an application in a thread, and yield its address."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def begin() -> tuple[web.AppRunner, str]:
        runner = web.AppRunner(make(), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"

    async def end(runner: web.AppRunner) -> None:
        await runner.cleanup()
        left = asyncio.all_tasks() - {asyncio.current_task()}  # they answer clients that are gone
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    runner, address = asyncio.run_coroutine_threadsafe(begin(), loop).result(30)
    try:
        yield address
    finally:
        asyncio.run_coroutine_threadsafe(end(runner), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def kubernetes_server() -> Iterator[str]:
    """Run an API server, and yield its address."""
    with served(lambda: KubernetesApi().application()) as address:
        yield address


class FaultyProxy:
    """A proxy before a coordinator's server, in the loop of the test.

    `loses_replies`: requests that change something reach the server, and their replies no one. `holds`: such requests
    wait until `release`, and nothing answers them. `is_silent`: answers of watches come to no one. Watches wait until
    `may_watch`. `asked` has the requests so far.
    """

    def __init__(self, server: str) -> None:
        self.address = ""
        self.loses_replies = False
        self.holds = False
        self.is_silent = False
        self.may_watch = asyncio.Event()
        self.may_watch.set()
        self.asked: list[str] = []
        self._watches: list[web.Request] = []
        self._never = asyncio.Event()  # it keeps the tasks that wait for it, also of connections that ended
        self._held: list[tuple[web.Request, bytes]] = []
        self._server = server

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["FaultyProxy"]:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._pass)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            async with aiohttp.ClientSession() as self._client:
                yield self
        finally:
            await runner.cleanup()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.asked.append(f"{request.method} {request.path_qs}")
        is_change = request.path.endswith("/txn") or (request.method in ("PUT", "POST") and "/shards" in request.path)
        if is_change and self.holds:
            self._held.append((request, body))
            await self._never.wait()
        if request.path.endswith("/watch") or "watch" in request.query:
            self._watches.append(request)
            if self.is_silent:
                await self._never.wait()
            await self.may_watch.wait()
        async with self._ask(request, body) as answer:
            if is_change and self.loses_replies:
                await answer.read()
                assert request.transport is not None
                request.transport.abort()
            response = web.StreamResponse(status=answer.status)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            return response

    def cut_watches(self) -> None:
        """End the connections of the watches so far."""
        for request in self._watches:
            if request.transport is not None:
                request.transport.abort()
        self._watches.clear()

    async def release(self) -> None:
        """Let the requests that wait reach the server, and return when it has answered them."""
        self.holds = False
        for request, body in self._held:
            async with self._ask(request, body) as answer:
                await answer.read()
        self._held = []

    def _ask(self, request: web.Request, body: bytes) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        return self._client.request(
            request.method,
            self._server + request.path_qs,
            data=body,
            headers={"Content-Type": request.headers.get("Content-Type", "application/json")},
        )


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _accepts(address: str) -> bool:
    host, port = address.removeprefix("http://").split(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
        return True
    return False
