"""The keys that tokens are signed with, as an identity provider publishes them (JWKS). They are fetched when they are
first needed, kept for a while, and fetched again early when a token names one that is not known: that is how keys are
rotated. Tokens of a made-up key must not make this a hammer, so there is a least time between two fetches."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.kit.clock import Clock
from penstock.kit.logging import logger
from penstock.model.errors import FaultError, NotAuthenticatedError, Thing

if TYPE_CHECKING:
    from jwt import PyJWK

Fetch = Callable[[str], Awaitable[Mapping[str, Any]]]
"""Gives the JSON object at a URL. Raises FaultError."""

FETCH_SECONDS_MIN: Final = 10.0
KEYS_MAX: Final = 100
_DISCOVERY: Final = "/.well-known/openid-configuration"
_log = logger("tokens")


class TokenKeys:
    """Keys by their id. `url` may be empty: then the issuer is asked where its keys are."""

    def __init__(self, issuer: str, url: str, cache_seconds: float, fetch: Fetch, clock: Clock) -> None:
        self._issuer = issuer
        self._url = url
        self._cache_seconds = cache_seconds
        self._fetch = fetch
        self._clock = clock
        self._keys: dict[str, PyJWK] = {}
        self._fetched_at = float("-inf")
        self._tried_at = float("-inf")
        self._fetching = asyncio.Lock()

    async def get(self, key_id: str) -> "PyJWK":
        """Raises NotAuthenticatedError for a key that the provider has not, FaultError when it cannot be asked."""
        if key_id not in self._keys or self._is_stale():
            await self._refresh(key_id)
        key = self._keys.get(key_id)
        if key is None:
            raise NotAuthenticatedError("", "send a token signed with a key that the issuer publishes")
        return key

    def _is_stale(self) -> bool:
        return self._clock.monotonic() - self._fetched_at > self._cache_seconds

    async def _refresh(self, key_id: str) -> None:
        """One at a time. A provider that does not answer is no reason to doubt a key that is known."""
        async with self._fetching:
            now = self._clock.monotonic()
            if (key_id in self._keys and not self._is_stale()) or now - self._tried_at < FETCH_SECONDS_MIN:
                return
            self._tried_at = now
            try:
                self._keys = _keys_of(await self._fetch(await self._address()))
            except FaultError as fault:
                if key_id not in self._keys:
                    self._tried_at = float("-inf")
                    raise
                _log.warning("the keys of tokens could not be fetched again", fault=str(fault))
                return
            self._fetched_at = self._clock.monotonic()
            _log.info("keys of tokens fetched", count=len(self._keys))

    async def _address(self) -> str:
        if self._url:
            return self._url
        found = await self._fetch(self._issuer.rstrip("/") + _DISCOVERY)
        if found.get("issuer") != self._issuer:
            raise FaultError(
                Thing("issuer", self._issuer),
                f"calls itself {found.get('issuer')!r}",
                "set jwt_issuer to what it calls itself, to the letter",
            )
        url = found.get("jwks_uri")
        if not isinstance(url, str) or not url.startswith(("https://", "http://")):
            raise FaultError(Thing("issuer", self._issuer), "names no jwks_uri", "set jwt_jwks_url")
        return url


def _keys_of(document: Mapping[str, Any]) -> "dict[str, PyJWK]":
    """A key that cannot be used here (another type, a use other than signing) is passed over."""
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    listed = document.get("keys")
    keys: dict[str, PyJWK] = {}
    for entry in listed[:KEYS_MAX] if isinstance(listed, list) else []:
        if not isinstance(entry, dict) or not isinstance(entry.get("kid"), str) or entry.get("use", "sig") != "sig":
            continue
        if entry.get("kty") == "oct":
            continue  # a secret that is published is none
        try:
            keys[entry["kid"]] = PyJWK(entry)
        except PyJWTError as error:
            _log.warning("a key of tokens cannot be used", key=entry["kid"], error=str(error))
    return keys
