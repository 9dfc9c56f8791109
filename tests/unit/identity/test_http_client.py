"""HTTP requests to the configured servers: their content, and that one which hangs does not delay another."""

import asyncio

from aiohttp import web
from aiohttp.test_utils import TestServer

from penstock.identity.http_client import HttpClient
from penstock.kit.settings import CONNECTIONS_PER_SERVER_MAX


def url_of(server):
    """Return a URL by name, because cookies of addresses are not kept anyway."""
    return f"http://localhost:{server.port}/"


def test_a_cookie_of_one_answer_does_not_come_with_the_next_question():
    """A cookie that a server had set for one user came back with another's questions."""
    cookies = []

    async def answer(request):
        cookies.append(request.headers.get("Cookie"))
        response = web.Response(text="allow")
        response.set_cookie("session", "anna")
        return response

    async def scenario():
        app = web.Application()
        app.router.add_post("/", answer)
        client = HttpClient(60)
        async with TestServer(app) as server:
            for name in ("anna", "otto"):
                assert await client.post_form(url_of(server), {"username": name}) == "allow"
            await client.close()

    asyncio.run(scenario())
    assert cookies == [None, None]


def test_a_server_that_hangs_does_not_keep_another_from_being_asked():
    async def scenario():
        may_answer, all_taken, begun = asyncio.Event(), asyncio.Event(), []

        async def hang(request):
            begun.append(request)
            if len(begun) == CONNECTIONS_PER_SERVER_MAX:
                all_taken.set()
            await may_answer.wait()
            return web.json_response({})

        async def answer(_):
            return web.json_response({"keys": []})

        hanging, good = web.Application(), web.Application()
        hanging.router.add_get("/", hang)
        good.router.add_get("/", answer)
        client = HttpClient(60)
        async with TestServer(hanging) as slow, TestServer(good) as quick:
            count = CONNECTIONS_PER_SERVER_MAX + 20
            waiting = [asyncio.ensure_future(client.fetch_json(url_of(slow))) for _ in range(count)]
            await all_taken.wait()
            assert await client.fetch_json(url_of(quick)) == {"keys": []}
            assert len(begun) == CONNECTIONS_PER_SERVER_MAX

            may_answer.set()
            await asyncio.gather(*waiting)
            await client.close()

    asyncio.run(scenario())
