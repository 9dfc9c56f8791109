"""Log-ins by passwords: they are checked against the digests of users, and good ones are cached.

It changes no user, and does not know where users are stored.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from penstock.identity import CredentialCache, User, Users
from penstock.identity.credentials import KEY_BYTES
from penstock.identity.decoys import Decoys
from penstock.identity.passwords import ARGON2ID, OURS, SALT_BYTES
from penstock.identity.random_digests import RANDOM, hash_random
from penstock.kit.logging import logger
from penstock.kit.peers import NOWHERE, Source
from penstock.kit.settings import CREDENTIALS_MAX
from penstock.model.errors import NotAuthenticatedError
from penstock.services.password_checks import PasswordChecks

_log = logger("accounts")
Renew = Callable[[str, str, str], Awaitable[str]]
"""Takes a user's name, the digest of another broker, and the password; returns the digest that is valid now."""


@dataclass(frozen=True, slots=True)
class _Previous:
    """A password that still counts, up to a time of the loop's clock."""

    password_hash: str
    algorithm: str
    until: float


class PasswordLogIns:
    """Close it when the broker stops."""

    def __init__(self, users: Callable[[], Users], renew: Renew | None = None) -> None:
        """`users` returns the users as they are now; `renew` replaces digests of other brokers."""
        self._users = users
        self._renew = renew
        self._cache = CredentialCache(os.urandom(KEY_BYTES), CREDENTIALS_MAX)
        self._decoy_key = os.urandom(KEY_BYTES)
        self._decoys, self._decoys_of = Decoys([], self._decoy_key), Users()
        self._checks = PasswordChecks()
        self._previous: dict[str, _Previous] = {}

    def close(self) -> None:
        self._checks.close()

    @property
    def check_count(self) -> int:
        """Return how many passwords were hashed for log-ins, because the cache had no answer."""
        return self._checks.count

    async def hashed(self, password: str) -> str:
        return await self._checks.hashed(password)

    async def digest_of(self, password: str | None, *, is_random: bool) -> tuple[str | None, str]:
        """Return the digest of a new password, and its algorithm: none for no password, an empty one for an empty one.

        `is_random`: no one can guess the password, so that its digest is cheap.
        """
        if password and is_random:
            return hash_random(password, os.urandom(SALT_BYTES)), RANDOM
        return await self._checks.hashed(password) if password else password, ARGON2ID

    async def log_in(self, name: str, password: str, *, source: Source = NOWHERE) -> User:
        """Return the user whose credentials these are.

        A wrong password and an unknown user raise the same NotAuthenticatedError, with the time at which to answer it.
        """
        user = self._users().find(name)
        password_hash, algorithm = (user.password_hash, user.hashing_algorithm) if user else self._decoy(name)
        digest = self._cache.digest(name, password, password_hash)
        if not self._cache.knows(digest):
            if self._knows_previous(name, password):
                return self._known(name)
            verdict = await self._checks.verdict(digest, password_hash, algorithm, password, source)
            if not verdict.is_right:
                if await self._has_previous(name, password, source):
                    return self._known(name)
                raise NotAuthenticatedError(name, due=verdict.due(asyncio.get_running_loop().time()))
            self._cache.remember(digest)
            if self._renew is not None and algorithm not in OURS:
                renewed = await self._renew(name, password_hash, password)
                if renewed != password_hash:
                    password_hash = renewed
                    self._cache.remember(self._cache.digest(name, password, renewed))
            user = self._users().find(name)  # it may have changed while its password was checked
        if user is None or user.password_hash != password_hash:
            raise NotAuthenticatedError(name)
        return user

    def accept_previous(self, user: User, seconds: float) -> None:
        """Accept the password that a user has now beside the next one, for that long or until a restart."""
        until = asyncio.get_running_loop().time() + seconds
        self._previous[user.name] = _Previous(user.password_hash, user.hashing_algorithm, until)

    async def has_password(self, user: User, password: str) -> bool:
        """Return whether this is the user's password. It is no log-in."""
        digest = self._cache.digest(user.name, password, user.password_hash)
        verdict = await self._checks.verdict(digest, user.password_hash, user.hashing_algorithm, password, NOWHERE)
        return verdict.is_right

    def forget_decoys(self) -> None:
        """Let go of users that are not there any more."""
        self._decoys_of = Users()

    def _known(self, name: str) -> User:
        """Return the user, who may have been deleted while the password was checked."""
        user = self._users().find(name)
        if user is None:
            raise NotAuthenticatedError(name)
        return user

    def _previous_of(self, name: str) -> _Previous | None:
        """Return the user's previous password if it still counts."""
        previous = self._previous.get(name)
        if previous is not None and asyncio.get_running_loop().time() >= previous.until:
            del self._previous[name]
            return None
        return previous

    def _knows_previous(self, name: str, password: str) -> bool:
        previous = self._previous_of(name)
        if previous is None:
            return False
        return self._cache.knows(self._cache.digest(name, password, previous.password_hash))

    async def _has_previous(self, name: str, password: str, source: Source) -> bool:
        """Return whether this is the user's previous password, and still counts. It is remembered then."""
        previous = self._previous_of(name)
        if previous is None:
            return False
        digest = self._cache.digest(name, password, previous.password_hash)
        verdict = await self._checks.verdict(digest, previous.password_hash, previous.algorithm, password, source)
        if verdict.is_right:
            self._cache.remember(digest)
            _log.warning("log-in with the previous password, which is accepted for a time only", user=name)
        return verdict.is_right

    def _decoy(self, name: str) -> tuple[str, str]:
        """Return the digest that is checked for a name without a user."""
        users = self._users()
        if self._decoys_of is not users:
            digests = ((user.password_hash, user.hashing_algorithm) for user in users.all())
            self._decoys, self._decoys_of = Decoys(digests, self._decoy_key), users
        return self._decoys.pick(name)
