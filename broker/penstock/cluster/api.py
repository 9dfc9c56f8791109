"""Requests in JSON to the servers of a coordinator, over HTTP.

A request that certainly did not reach a server goes to the next one. One that may have reached it is not repeated here,
because it may have changed something.
"""

import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from penstock.cluster.coordinator import UnreachableError
from penstock.model.errors import Thing

REQUEST_S: Final = 2.0
"""The time for a request: a coordinator that is slower is as good as none."""
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
Headers = Callable[[], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    value: Mapping[str, Any]


class LostReplyError(UnreachableError):
    """The request may have been carried out, or may still be."""


class JsonApi:
    """A client of servers with the same data. It makes its session at first use; `close` ends it."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        tls: ssl.SSLContext | None = None,
        headers: Headers = dict,
        request_s: float = REQUEST_S,
    ) -> None:
        """`headers` is called for each request, as tokens are replaced."""
        self._addresses = list(addresses)
        self._tls = tls
        self._headers = headers
        self._timeout = aiohttp.ClientTimeout(total=request_s)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def ask(self, method: str, path: str, body: object = None, *, kind: str = "application/json") -> Reply:
        """Return a server's reply, whatever its status.

        Raises UnreachableError when no server got the request, LostReplyError when one may have.
        """
        for address in list(self._addresses):
            try:
                async with self._request(method, address, path, body, kind, self._timeout) as response:
                    return Reply(response.status, _object(address, await _body(response)))
            except aiohttp.ClientConnectorError:  # not connected: nothing was sent
                self._last(address)
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                self._last(address)
                raise LostReplyError(_thing(address), f"sent no answer: {error or type(error).__name__}") from error
        raise UnreachableError(_thing(", ".join(self._addresses)), "cannot be reached")

    async def lines(
        self, method: str, path: str, body: object, seconds: float
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        """Yield the objects of an answer without an end, line by line, for at most so long. Raises UnreachableError."""
        address = self._addresses[0]
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with (
                self._request(method, address, path, body, "application/json", timeout) as response,
                aclosing(_lines(response)) as lines,
            ):
                async for line in lines:
                    yield _object(address, line)
        except TimeoutError:
            return
        except (aiohttp.ClientError, OSError, ValueError) as error:
            self._last(address)
            raise UnreachableError(_thing(address), f"ended a watch: {error or type(error).__name__}") from error

    @asynccontextmanager
    async def _request(
        self, method: str, address: str, path: str, body: object, kind: str, timeout: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._session is None:
            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        content = None if body is None else json.dumps(body).encode()
        headers = {**self._headers(), "Content-Type": kind}
        async with self._session.request(
            method,
            address + path,
            data=content,
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
            ssl=self._tls if self._tls is not None else True,
        ) as response:
            yield response

    def _last(self, address: str) -> None:
        """Ask the other servers first from now on."""
        if address in self._addresses:
            self._addresses.remove(address)
            self._addresses.append(address)


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """Return the whole body, which comes in parts. Raises ClientError for one that is too large."""
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > ANSWER_BYTES_MAX:
            raise aiohttp.ClientPayloadError(f"an answer has more than {ANSWER_BYTES_MAX} bytes")
    return bytes(body)


async def _lines(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a body, which may be longer than a buffer of the client library. Raises ClientError."""
    line = bytearray()
    async for part in response.content.iter_any():
        begin, *ends = part.split(b"\n")
        line += begin
        for end in ends:
            yield bytes(line)
            line = bytearray(end)
        if len(line) > ANSWER_BYTES_MAX:
            raise aiohttp.ClientPayloadError(f"a line has more than {ANSWER_BYTES_MAX} bytes")
    if line:
        yield bytes(line)


def _object(address: str, content: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise LostReplyError(_thing(address), f"sent an answer that is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise LostReplyError(_thing(address), "sent an answer that is not an object")
    return value


def _thing(address: str) -> Thing:
    return Thing("coordinator", address)
