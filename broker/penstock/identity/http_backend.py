"""Authenticates and authorizes by the operator's HTTP server, with the protocol of RabbitMQ's auth-backend-http.

A question is a form with POST; the body of the answer is `allow` or `deny`, for users followed by their tags. Answers
hold for a few seconds, so that a declare does not wait for the same question each time, and concurrent identical
questions are sent once. The number of waiting calls is bounded.
"""

import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from cachetools import TTLCache

from penstock.identity import Allowance, Identity, Tag, UndecidedError
from penstock.kit.clock import Clock
from penstock.kit.peers import NOWHERE, Source
from penstock.kit.settings import DECISIONS_WAITING_MAX
from penstock.kit.single_flight import SingleFlight
from penstock.model.errors import FaultError, NotAuthenticatedError, Thing
from penstock.model.records import Access

Ask = Callable[[str, Mapping[str, str]], Awaitable[str]]
"""Posts a form and returns the body of the answer. Raises FaultError."""

ANSWERS_MAX: Final = 65_536
_TAGS: Final = {tag.value: tag for tag in Tag}


@dataclass(frozen=True, slots=True)
class HttpUrls:
    user: str
    vhost: str
    resource: str
    topic: str = ""
    """Empty when routing keys are not checked."""


class HttpBackend:
    """Cache of answers by a keyed digest of the question, because some questions have passwords."""

    def __init__(self, urls: HttpUrls, cache_seconds: float, ask: Ask, clock: Clock) -> None:
        self._urls = urls
        self._ask = ask
        self._key = os.urandom(32)
        self._answers: TTLCache[bytes, str] = TTLCache(ANSWERS_MAX, cache_seconds, timer=clock.monotonic)
        self._asking = SingleFlight[str]("http back-end", DECISIONS_WAITING_MAX, _busy)

    async def log_in(self, name: str, password: str, *, source: Source = NOWHERE) -> Identity:
        del source  # the limit on questions is for all sources together
        question = {"username": name, "password": password}
        answer = self._known(self._urls.user, question)
        if answer is None:
            answer = await self._asked(self._urls.user, question)
        word, *tags = answer.split()
        if word != "allow":
            raise NotAuthenticatedError(name)
        return HttpUser(name, tuple(_TAGS[tag] for tag in dict.fromkeys(tags) if tag in _TAGS), self)

    def may_enter(self, identity: "HttpUser", vhost: str) -> bool:
        question = {"username": identity.name, "vhost": vhost, "tags": identity.tag_text}
        return self._decided(self._urls.vhost, question)

    def may(self, identity: "HttpUser", vhost: str, access: Access, resource: tuple[str, str]) -> bool:
        """Return whether access is allowed; `resource` is its kind and its name."""
        kind, name = resource
        question = {"username": identity.name, "vhost": vhost, "resource": kind, "name": name}
        question |= {"permission": access.value, "tags": identity.tag_text}
        return self._decided(self._urls.resource, question)

    @property
    def narrows_keys(self) -> bool:
        return bool(self._urls.topic)

    def may_key(self, identity: "HttpUser", vhost: str, access: Access, place: tuple[str, str]) -> bool:
        """Return whether a routing key is allowed; `place` is an exchange and a routing key."""
        if not self._urls.topic:
            return True
        exchange, key = place
        question = {"username": identity.name, "vhost": vhost, "resource": "topic", "name": exchange}
        question |= {"permission": access.value, "routing_key": key, "tags": identity.tag_text}
        question |= {"variable_map.username": identity.name, "variable_map.vhost": vhost}
        return self._decided(self._urls.topic, question)

    def _decided(self, url: str, question: Mapping[str, str]) -> bool:
        answer = self._known(url, question)
        if answer is None:

            async def ask() -> None:
                await self._asked(url, question)

            raise UndecidedError(ask)
        return answer.split()[:1] == ["allow"]

    def _known(self, url: str, question: Mapping[str, str]) -> str | None:
        return self._answers.get(self._digest(url, question))

    async def _asked(self, url: str, question: Mapping[str, str]) -> str:
        digest = self._digest(url, question)

        async def ask() -> str:
            answer = (await self._ask(url, question)).strip().lower() or "deny"
            self._answers[digest] = answer
            return answer

        return await self._asking.run(digest, ask)

    def _digest(self, url: str, question: Mapping[str, str]) -> bytes:
        digest = hashlib.blake2b(key=self._key, digest_size=32)
        for part in (url, *question.keys(), *question.values()):
            content = part.encode("utf-8", "surrogateescape")
            digest.update(len(content).to_bytes(8, "little") + content)
        return digest.digest()


def _busy() -> FaultError:
    rule = f"has not answered yet, and {DECISIONS_WAITING_MAX} calls wait for it"
    return FaultError(Thing("log-in", "http back-end"), rule, "retry later, and check that server")


@dataclass(frozen=True, slots=True)
class HttpUser:
    """A `Identity` that the HTTP server authenticated."""

    name: str
    tags: tuple[Tag, ...]
    backend: HttpBackend = field(repr=False, compare=False)

    @property
    def tag_text(self) -> str:
        return " ".join(self.tags)

    @property
    def is_administrator(self) -> bool:
        return Tag.ADMINISTRATOR in self.tags

    @property
    def expires_at_ms(self) -> int | None:
        return None

    def sees_vhost(self, vhost: str) -> bool:
        """Return whether the vhost is visible, by tags alone: a listing must not ask the server for each vhost."""
        del vhost
        return self.is_administrator or Tag.MONITORING in self.tags

    def allowance(self, vhost: str) -> Allowance | None:
        return HttpAllowance(self, vhost) if self.backend.may_enter(self, vhost) else None


@dataclass(frozen=True, slots=True)
class HttpAllowance:
    """An `Allowance` by the HTTP server."""

    user: HttpUser
    vhost: str

    def allows(self, access: Access, name: str, kind: str = "") -> bool:
        return self.user.backend.may(self.user, self.vhost, access, (kind, name))

    def narrows_keys(self, exchange: str) -> bool:
        del exchange
        return self.user.backend.narrows_keys

    def allows_key(self, access: Access, exchange: str, key: str) -> bool:
        return self.user.backend.may_key(self.user, self.vhost, access, (exchange, key))
