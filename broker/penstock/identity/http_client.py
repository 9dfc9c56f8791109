"""HTTP client for the servers in the settings: token keys and the HTTP back end.

Requests are bounded in time and size. Each server has its own connections, so that one that hangs does not block
another. Redirects are not followed, because credentials must reach only the server of the settings; cookies are not
kept, because the next request is another user's.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

import aiohttp

from penstock.kit.settings import CONNECTIONS_PER_SERVER_MAX
from penstock.model.errors import FaultError, Thing

ANSWER_BYTES_MAX: Final = 1024 * 1024


class HttpClient:
    """A client that makes its session at first use; `close` ends it."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def fetch_json(self, url: str) -> Mapping[str, Any]:
        """Return the JSON object at a URL. Raises FaultError."""
        content = await self._read("GET", url, None)
        try:
            found = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise _fault(url, f"returned invalid JSON: {error}") from error
        if not isinstance(found, dict):
            raise _fault(url, "returned JSON that is not an object")
        return found

    async def post_form(self, url: str, form: Mapping[str, str]) -> str:
        return (await self._read("POST", url, dict(form))).decode("utf-8", "replace")

    async def _read(self, method: str, url: str, form: dict[str, str] | None) -> bytes:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, limit_per_host=CONNECTIONS_PER_SERVER_MAX)
            jar = aiohttp.DummyCookieJar()
            self._session = aiohttp.ClientSession(connector=connector, cookie_jar=jar, timeout=self._timeout)
        try:
            async with self._session.request(method, url, data=form, allow_redirects=False) as response:
                if response.status != 200:
                    raise _fault(url, f"answered with status {response.status}")
                content = await response.content.read(ANSWER_BYTES_MAX + 1)
                while len(content) <= ANSWER_BYTES_MAX and (more := await response.content.read(ANSWER_BYTES_MAX)):
                    content += more
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise _fault(url, f"cannot be asked: {error or type(error).__name__}") from error
        if len(content) > ANSWER_BYTES_MAX:
            raise _fault(url, f"gave more than {ANSWER_BYTES_MAX} bytes")
        return content


def _fault(url: str, rule: str) -> FaultError:
    return FaultError(Thing("server", url), rule, "retry later, and check that server")
