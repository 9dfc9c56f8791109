"""Authenticates tokens (JWT) that the configured issuer signed.

A token is a bearer token, or takes the place of a password, as with RabbitMQ and LavinMQ. The signature is checked once
for each token and set of keys: a new set means a new check. The time is checked at every call.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from cachetools import LRUCache

from penstock.identity import Identity, TokenRules, TokenUser, token_user_of
from penstock.identity.sign_in import NotATokenError
from penstock.identity.token_keys import TokenKeys
from penstock.kit.clock import Clock
from penstock.kit.peers import NOWHERE, Source
from penstock.model.errors import NotAuthenticatedError

TOKEN_BYTES_MAX: Final = 16 * 1024
TOKENS_MAX: Final = 16_384
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Asymmetric signatures only: with a shared secret every broker could make tokens."""
_WAY_OUT: Final = "send a token that the issuer signed for this broker"


class TokenBackend:
    """Cache of tokens by their digest, so that a token is never kept in memory."""

    def __init__(self, keys: TokenKeys, rules: TokenRules, issuer: str, skew_seconds: float, clock: Clock) -> None:
        self._keys = keys
        self._rules = rules
        self._issuer = issuer
        self._skew_ms = int(skew_seconds * 1_000)
        self._clock = clock
        self._known: LRUCache[bytes, TokenUser] = LRUCache(TOKENS_MAX)
        self._known_version = keys.version

    async def log_in(self, name: str, password: str, *, source: Source = NOWHERE) -> Identity:
        """Log in by a token. The name is ignored: the token has it."""
        del name, source
        return await self.log_in_by_token(password)

    async def log_in_by_token(self, token: str) -> Identity:
        if token.count(".") != 2 or len(token) > TOKEN_BYTES_MAX:
            raise NotATokenError("", _WAY_OUT)
        digest = hashlib.blake2b(token.encode("utf-8", "surrogateescape"), digest_size=32).digest()
        self._keys.refresh()
        user = self._by_digest().get(digest)
        if user is None:
            user = await self._verified(token)
            # The keys are those that verified this token: nothing has run in between.
            self._by_digest()[digest] = user
        self._check_time(user)
        return user

    def check_open(self, identity: Identity) -> None:
        """Raise NotAuthenticatedError when the issuer has removed the key of the token that opened a stream."""
        if isinstance(identity, TokenUser) and identity.key is not None and self._keys.is_removed(identity.key):
            raise NotAuthenticatedError(identity.name, "open a new stream with a new token: its key was removed")

    def refresh_keys(self) -> None:
        """Start to fetch old keys, without waiting for them."""
        self._keys.refresh()

    def watch_keys(self, removed: Callable[[], None]) -> None:
        """Call `removed` when the issuer has removed keys."""
        self._keys.removed = removed

    def _by_digest(self) -> LRUCache[bytes, TokenUser]:
        """Return the tokens that were verified by the keys that there are now."""
        if self._known_version != self._keys.version:
            self._known.clear()
            self._known_version = self._keys.version
        return self._known

    async def _verified(self, token: str) -> TokenUser:
        import jwt

        try:
            head = jwt.get_unverified_header(token)
            key_id, algorithm = head.get("kid"), head.get("alg")
            if not isinstance(key_id, str) or algorithm not in ALGORITHMS:
                raise NotAuthenticatedError("", f"sign tokens with a published key and one of {', '.join(ALGORITHMS)}")
            key = await self._keys.get(key_id)
            published = self._keys.published(key_id)
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                audience=self._rules.audience or None,
                issuer=self._issuer or None,
                options={
                    "require": ["exp"],
                    # Times are checked by the broker's own clock, with the allowed skew.
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_aud": bool(self._rules.audience),
                    "verify_iss": bool(self._issuer),
                },
            )
        except jwt.PyJWTError as error:
            raise NotAuthenticatedError("", f"{_WAY_OUT} ({error})") from error
        self._check_beginning(claims.get("nbf"))
        user = token_user_of(claims, self._rules)
        assert user.expires_at_ms is not None
        return replace(user, expires_at_ms=user.expires_at_ms + self._skew_ms, key=published)

    def _check_time(self, user: TokenUser) -> None:
        assert user.expires_at_ms is not None
        if self._clock.now_ms() >= user.expires_at_ms:
            raise NotAuthenticatedError(user.name, "get a new token: this one has expired")

    def _check_beginning(self, not_before: object) -> None:
        if isinstance(not_before, int | float) and not_before * 1_000 > self._clock.now_ms() + self._skew_ms:
            raise NotAuthenticatedError("", "wait: this token is not valid yet")
