"""Answers of a coordinator's server are read whole, however they come, and have a bound."""

import asyncio
import json

import pytest
from aiohttp import web

from penstock.cluster import api
from penstock.cluster.api import JsonApi, LostReplyError, Reply
from penstock.cluster.coordinator import UnreachableError
from support.coordinators import served

VALUE = {"items": ["x" * 1000] * 50}


async def in_parts(request: web.Request) -> web.StreamResponse:
    """Answer in two parts, the second one well after the first."""
    content = json.dumps(VALUE).encode()
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(content[:100])
    await asyncio.sleep(0.1)
    await response.write(content[100:])
    return response


def application() -> web.Application:
    application = web.Application()
    application.router.add_get("/", in_parts)
    return application


def asked() -> Reply:
    async def run() -> Reply:
        with served(application) as address:
            client = JsonApi([address], request_s=30.0)
            try:
                return await client.ask("GET", "/")
            finally:
                await client.close()

    return asyncio.run(run())


def test_an_answer_that_comes_in_parts_is_read_whole() -> None:
    assert asked() == Reply(200, VALUE)


def test_an_answer_without_an_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "ANSWER_BYTES_MAX", 2_000)

    with pytest.raises(LostReplyError, match="more than 2000 bytes"):
        asked()


async def in_lines(_: web.Request) -> web.StreamResponse:
    """Answer with a line that is larger than buffers of the client library, and another without an end."""
    return web.Response(body=json.dumps({"value": "x" * 1_000_000}).encode() + b'\n{"value": "y"}')


def lines_asked() -> list[int]:
    async def run() -> list[int]:
        application = web.Application()
        application.router.add_get("/", in_lines)
        with served(lambda: application) as address:
            client = JsonApi([address], request_s=30.0)
            try:
                return [len(line["value"]) async for line in client.lines("GET", "/", None, 30.0)]
            finally:
                await client.close()

    return asyncio.run(run())


def test_a_line_that_is_larger_than_a_buffer_is_read_whole() -> None:
    assert lines_asked() == [1_000_000, 1]


def test_a_line_without_an_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "ANSWER_BYTES_MAX", 2_000)

    with pytest.raises(UnreachableError, match="a line has more than 2000 bytes"):
        lines_asked()
