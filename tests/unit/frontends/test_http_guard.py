"""Connections to health and metrics: excess ones are closed, and so are idle ones."""

import asyncio
from contextlib import suppress

from aiohttp import web

from penstock.frontends.http.guard import Guard


async def _serve(guard_of, scenario):
    async def answer(request):
        guard.note(request)
        return web.Response(text="ok")

    runner = web.AppRunner(_application(answer), access_log=None)
    await runner.setup()
    served = runner.server
    assert served is not None
    guard = guard_of(served)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: guard.protocol(len(served.connections)), "127.0.0.1", 0)
    try:
        await scenario(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        await runner.cleanup()


def _application(answer):
    application = web.Application()
    application.router.add_get("/", answer)
    return application


async def _read(reader):
    with suppress(ConnectionResetError):
        return await asyncio.wait_for(reader.read(1_000), 60)
    return b""


def test_a_connection_that_asks_nothing_is_closed():
    async def scenario(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await _read(reader) == b""
        writer.close()

    asyncio.run(_serve(lambda make: Guard(make, first_request_seconds=0.05), scenario))


def test_a_connection_that_asked_stays_beyond_the_time_for_a_first_request():
    async def scenario(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert (await _read(reader)).endswith(b"ok")
            await asyncio.sleep(0.6)
        writer.close()

    asyncio.run(_serve(lambda make: Guard(make, first_request_seconds=0.5), scenario))


def test_one_connection_too_many_is_hung_up_on():
    async def scenario(port):
        _, kept = await asyncio.open_connection("127.0.0.1", port)
        kept.write(b"GET /")
        await asyncio.sleep(0.05)
        reader, refused = await asyncio.open_connection("127.0.0.1", port)
        assert await _read(reader) == b""
        for writer in (kept, refused):
            writer.close()

    asyncio.run(_serve(lambda make: Guard(make, connections_max=1), scenario))
