"""Keys that sign tokens, as an identity provider publishes them (JWKS).

A key counts while it is in the set that was fetched last. A set is fetched when a key is first needed, again in the
background once it is older than `cache_seconds`, and early when a token names a key that is not in it: that is how keys
are rotated.

Tokens with invented keys must not overload the provider or block others: there is one fetch at a time, shared by all
who wait for it, and its result, good or bad, is the answer for every unknown key until FETCH_SECONDS_MIN have passed. A
token of a known key never waits, unless nothing could be fetched for STALE_SECONDS_MAX beyond `cache_seconds`.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.kit.clock import Clock
from penstock.kit.logging import logger
from penstock.kit.settings import KEY_WAITERS_MAX
from penstock.kit.single_flight import SingleFlight
from penstock.model.errors import FaultError, NotAuthenticatedError, Thing

if TYPE_CHECKING:
    from jwt import PyJWK

Fetch = Callable[[str], Awaitable[Mapping[str, Any]]]
"""Returns the JSON object at a URL. Raises FaultError."""

FETCH_SECONDS_MIN: Final = 10.0
STALE_SECONDS_MAX: Final = 86_400.0
"""A provider may be down for a day before tokens of its known keys are refused."""
KEYS_MAX: Final = 100
_DISCOVERY: Final = "/.well-known/openid-configuration"
_log = logger("tokens")


class TokenKeys:
    """Keys by id. `url` may be empty: then the issuer's metadata has it."""

    def __init__(self, issuer: str, url: str, cache_seconds: float, fetch: Fetch, clock: Clock) -> None:
        self.version = 0  # grows with each set that differs from the one before
        self.removed: Callable[[], None] = lambda: None  # called when a fetched set lacks keys of the one before
        self._issuer = issuer
        self._url = url
        self._cache_seconds = cache_seconds
        self._fetch = fetch
        self._clock = clock
        self._published: dict[str, Mapping[str, Any]] = {}
        self._last_fetched: dict[str, Mapping[str, Any]] = {}
        self._keys: dict[str, PyJWK] = {}
        self._fetched_at = float("-inf")
        self._tried_at = float("-inf")
        self._fault: FaultError | None = None
        self._fetching = SingleFlight[None]("keys of tokens", KEY_WAITERS_MAX, self._full)

    def refresh(self) -> None:
        """Start to fetch a set that is old, without waiting for it, and drop one that is too old to be used."""
        age = self._clock.monotonic() - self._fetched_at
        if age <= self._cache_seconds or not self._last_fetched:
            return
        if age > self._cache_seconds + STALE_SECONDS_MAX and self._published:
            self._replace({})
        if not self._is_answered():
            self._fetching.start("", self._fetch_all)

    async def get(self, key_id: str) -> "PyJWK":
        """Return a key.

        Raises NotAuthenticatedError if the provider does not have it, FaultError if it cannot be reached.
        """
        self.refresh()
        if key_id not in self._keys:
            await self._fetched()
        key = self._keys.get(key_id)
        if key is None:
            raise NotAuthenticatedError("", "send a token signed with a key that the issuer publishes")
        return key

    def published(self, key_id: str) -> Mapping[str, Any] | None:
        return self._published.get(key_id)

    def is_removed(self, key: Mapping[str, Any]) -> bool:
        """Return whether the set that was fetched last lacks a key, however old that set is."""
        return self._last_fetched.get(str(key.get("kid"))) != key

    async def _fetched(self) -> None:
        """Return when a fetch has succeeded, now or a moment ago."""
        if not self._is_answered():
            await self._fetching.run("", self._fetch_all)
        elif self._fault is not None:
            raise FaultError(self._fault.thing, self._fault.rule, self._fault.way_out)

    def _is_answered(self) -> bool:
        """Return whether the last fetch has ended, and counts for all keys that it did not find."""
        return self._clock.monotonic() - self._tried_at < FETCH_SECONDS_MIN

    async def _fetch_all(self) -> None:
        try:
            published = _usable(await self._fetch(await self._address()))
        except FaultError as fault:
            self._fault = fault
            _log.warning("the keys of tokens could not be fetched", fault=str(fault))
            raise
        else:
            self._fault = None
            self._fetched_at = self._clock.monotonic()
        finally:
            self._tried_at = self._clock.monotonic()
        if published != self._published:
            self._replace(published)
        before, self._last_fetched = self._last_fetched, published
        _log.info("keys of tokens fetched", count=len(self._keys))
        if any(map(self.is_removed, before.values())):
            self.removed()

    def _replace(self, published: dict[str, Mapping[str, Any]]) -> None:
        self._published, self._keys = published, _keys_of(published)
        self.version += 1

    def _full(self) -> FaultError:
        return FaultError(
            Thing("issuer", self._issuer or self._url),
            f"has not answered a request for its keys, and {KEY_WAITERS_MAX} tokens wait for it",
            "try again later",
        )

    async def _address(self) -> str:
        if self._url:
            return self._url
        found = await self._fetch(self._issuer.rstrip("/") + _DISCOVERY)
        if found.get("issuer") != self._issuer:
            raise FaultError(
                Thing("issuer", self._issuer),
                f"calls itself {found.get('issuer')!r}",
                "set jwt_issuer to exactly this name",
            )
        url = found.get("jwks_uri")
        if not isinstance(url, str) or not url.startswith(("https://", "http://")):
            raise FaultError(Thing("issuer", self._issuer), "names no jwks_uri", "set jwt_jwks_url")
        return url


def _usable(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the published signing keys by id."""
    listed = document.get("keys")
    found: dict[str, Mapping[str, Any]] = {}
    for entry in listed[:KEYS_MAX] if isinstance(listed, list) else []:
        if not isinstance(entry, dict) or not isinstance(entry.get("kid"), str) or entry.get("use", "sig") != "sig":
            continue
        if entry.get("kty") != "oct":  # a published secret is no secret
            found[entry["kid"]] = entry
    return found


def _keys_of(published: Mapping[str, Mapping[str, Any]]) -> "dict[str, PyJWK]":
    """Return the keys, without those of unknown kinds."""
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    keys: dict[str, PyJWK] = {}
    for key_id, entry in published.items():
        try:
            keys[key_id] = PyJWK(dict(entry))
        except PyJWTError as error:
            _log.warning("a key of tokens cannot be used", key=key_id, error=str(error))
    return keys
