"""Tokens of streams: how much a connection's tokens take, and which of them count."""

import pytest

from penstock.identity import TokenUser
from penstock.identity.scopes import Scopes
from penstock.model.errors import NotAuthenticatedError
from penstock.model.names import ConnectionId
from penstock.services import Connection, Principal
from penstock.services.principal import Token, digest_of
from penstock.services.token_sessions import CREDENTIALS_MAX, TokenSessions


class Clock:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms


class Timer:
    def cancel(self) -> None:
        pass


def sessions(clock):
    return TokenSessions(clock, lambda _seconds, _call: Timer(), lambda _connection: None, lambda: None)  # type: ignore[arg-type, return-value]


def opened(world, text, identity):
    world.opened(Principal(identity, Connection(ConnectionId(1)), digest_of(Token(text))))


def token_user(name="anna", expires_at_ms=60_000):
    return TokenUser(name, Scopes(), expires_at_ms)


def test_a_connection_remembers_so_many_tokens_and_the_latest_count() -> None:
    world = sessions(Clock())
    for number in range(CREDENTIALS_MAX + 10):
        opened(world, f"token-{number}", token_user(f"user-{number}"))

    assert world.newest(1, Token("token-0")) is None
    latest = world.newest(1, Token(f"token-{CREDENTIALS_MAX + 9}"))
    assert latest is not None
    assert latest.name == f"user-{CREDENTIALS_MAX + 9}"


def test_a_token_that_is_used_again_is_not_forgotten_for_newer_ones() -> None:
    clock = Clock()
    world = sessions(clock)
    opened(world, "mine", token_user())
    for number in range(CREDENTIALS_MAX * 2):
        opened(world, f"token-{number}", token_user("otto"))
        assert world.newest(1, Token("mine")) is not None

    clock.ms = 60_000
    with pytest.raises(NotAuthenticatedError):
        world.newest(1, Token("mine"))
