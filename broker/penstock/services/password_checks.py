"""Checks and hashes passwords on threads of their own, because each costs tens of milliseconds of a processor.

Invariants: the numbers of concurrent checks of one connection and of one address are bounded, so that guesses do not
keep others from logging in; concurrent checks of the same credentials are one check.
"""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from penstock.identity import hash_password, verify_password
from penstock.identity.passwords import SALT_BYTES
from penstock.kit.background import give_way
from penstock.kit.clock import Clock, SystemClock
from penstock.kit.peers import Source
from penstock.kit.settings import (
    PASSWORD_CHECKS_MAX,
    PASSWORD_CHECKS_OF_ADDRESS_MAX,
    PASSWORD_CHECKS_OF_CONNECTION_MAX,
    PASSWORD_CHECKS_WAITING_MAX,
    PASSWORD_REFUSAL_SECONDS,
)
from penstock.kit.turns import Turns
from penstock.model.errors import BusyError, Thing


class PasswordChecks:
    """Close it when the broker stops."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.count = 0
        self._clock = clock or SystemClock()
        self._threads = ThreadPoolExecutor(_threads_max(), thread_name_prefix="password", initializer=give_way)
        self._under_way: dict[bytes, asyncio.Future[Verdict]] = {}
        self._of_connection = Turns(PASSWORD_CHECKS_OF_CONNECTION_MAX)
        self._of_address = Turns(PASSWORD_CHECKS_OF_ADDRESS_MAX)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def hashed(self, password: str) -> str:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, hash_password, password, os.urandom(SALT_BYTES))

    async def verdict(
        self, digest: bytes, password_hash: str, algorithm: str, password: str, source: Source
    ) -> "Verdict":
        """Return whether the password belongs to the hash.

        `digest` stands for the credentials. A thousand connections of one client that log in at once are one check.
        Raises BusyError when too many checks wait.
        """
        if digest in self._under_way:
            return await asyncio.shield(self._under_way[digest])
        async with self._of_connection.take(source), self._of_address.take(source.address):
            return await asyncio.shield(self._begun(digest, password_hash, algorithm, password))

    def _begun(self, digest: bytes, password_hash: str, algorithm: str, password: str) -> "asyncio.Future[Verdict]":
        checking = self._under_way.get(digest)
        if checking is not None:
            return checking
        if len(self._under_way) >= PASSWORD_CHECKS_WAITING_MAX:
            raise BusyError(Thing("log-in", "password checks"), f"has {PASSWORD_CHECKS_WAITING_MAX} waiting already")
        loop = asyncio.get_running_loop()
        checking = loop.run_in_executor(self._threads, self._check, password_hash, algorithm, password)
        self._under_way[digest] = checking
        self.count += 1
        checking.add_done_callback(lambda _: self._under_way.pop(digest, None))
        return checking

    def _check(self, password_hash: str, algorithm: str, password: str) -> "Verdict":
        began = self._clock.monotonic()
        is_right = verify_password(password_hash, algorithm, password)
        return Verdict(is_right, self._clock.monotonic() - began)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`seconds` are those of the check alone, without its turn."""

    is_right: bool
    seconds: float

    def due(self, now: float) -> float:
        """Return when to refuse a wrong password, so that the time does not show which kind of digest was checked."""
        return now + max(0.0, PASSWORD_REFUSAL_SECONDS - self.seconds)


def _threads_max() -> int:
    """At most half of the processors, so that a flood of wrong passwords leaves the other half to messages."""
    return min(PASSWORD_CHECKS_MAX, max(1, (os.cpu_count() or 1) // 2))
