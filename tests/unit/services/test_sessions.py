"""Sessions: how much a connection's tokens take, and which of them count."""

import tracemalloc

import pytest

from penstock.identity import Visitor
from penstock.identity.scopes import Scopes
from penstock.model.errors import NotAuthenticatedError
from penstock.services.sessions import CREDENTIALS_MAX, Sessions


class Clock:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms


class Timer:
    def cancel(self) -> None:
        pass


def sessions(clock):
    return Sessions(clock, lambda _seconds, _call: Timer(), lambda: None)


def visitor(name="anna", expires_at_ms=60_000):
    return Visitor(name, Scopes(), expires_at_ms)


def test_the_same_token_with_other_spaces_is_remembered_once() -> None:
    world = sessions(Clock())
    world.opened(1, "Bearer token", visitor())

    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for count in range(500):
            world.opened(1, "Bearer" + " " * (20_000 + count) + "token", visitor())
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert grown < 100_000
    assert world.newest(1, "bearer   token ") is not None


def test_a_connection_remembers_so_many_tokens_and_the_latest_count() -> None:
    world = sessions(Clock())
    for number in range(CREDENTIALS_MAX + 10):
        world.opened(1, f"Bearer token-{number}", visitor(f"user-{number}"))

    assert world.newest(1, "Bearer token-0") is None
    latest = world.newest(1, f"Bearer token-{CREDENTIALS_MAX + 9}")
    assert latest is not None
    assert latest.name == f"user-{CREDENTIALS_MAX + 9}"


def test_a_token_that_is_used_again_is_not_forgotten_for_newer_ones() -> None:
    clock = Clock()
    world = sessions(clock)
    world.opened(1, "Bearer mine", visitor())
    for number in range(CREDENTIALS_MAX * 2):
        world.opened(1, f"Bearer token-{number}", visitor("otto"))
        assert world.newest(1, "Bearer mine") is not None

    clock.ms = 60_000
    with pytest.raises(NotAuthenticatedError):
        world.newest(1, "Bearer mine")
