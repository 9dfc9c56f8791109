"""Password checks: fair to clients that do not guess."""

import asyncio
import threading

import pytest

from penstock.kit.peers import Source
from penstock.kit.settings import (
    PASSWORD_CHECKS_OF_ADDRESS_MAX,
    PASSWORD_CHECKS_OF_CONNECTION_MAX,
    PASSWORD_CHECKS_WAITING_MAX,
    PASSWORD_REFUSAL_SECONDS,
)
from penstock.model.errors import BusyError
from penstock.services.password_checks import PasswordChecks, Verdict


class World:
    """Checks that wait for permission to end, and record the passwords in order."""

    def __init__(self, monkeypatch):
        self.may_end = threading.Event()
        self.order = []
        monkeypatch.setattr("penstock.services.password_checks.verify_password", self._verify)
        monkeypatch.setattr("penstock.services.password_checks._threads_max", lambda: 1)
        self.checks = PasswordChecks()

    def _verify(self, _hash, _algorithm, password):
        self.may_end.wait()
        self.order.append(password)
        return True

    def ask(self, password, source):
        asked = self.checks.verdict(password.encode(), "", "", password, source)
        return asyncio.ensure_future(asked)

    async def end(self, asked):
        self.may_end.set()
        done = await asyncio.gather(*asked)
        self.checks.close()
        return [verdict.is_right for verdict in done]


async def begun():
    for _ in range(50):
        await asyncio.sleep(0)


def test_one_connection_that_guesses_is_overtaken_by_others(monkeypatch):
    async def run():
        world = World(monkeypatch)
        guesses = [world.ask(f"guess {number}", Source("10.0.0.1", 1)) for number in range(300)]
        await begun()
        right = [world.ask(f"right {number}", Source("10.0.0.1", 2 + number)) for number in range(20)]
        await begun()
        await world.end([*guesses, *right])
        return world.order

    order = asyncio.run(run())

    assert len(order) == 320
    last = max(order.index(f"right {number}") for number in range(20))
    assert last < 2 * (20 + PASSWORD_CHECKS_OF_CONNECTION_MAX)


def test_one_address_leaves_room_for_others(monkeypatch):
    async def run():
        world = World(monkeypatch)
        guesses = [world.ask(f"guess {number}", Source("10.0.0.1", number)) for number in range(1_000)]
        await begun()
        right = world.ask("right", Source("10.0.0.2", 5_000))
        await begun()
        done = await world.end([*guesses, right])
        return world.order, done

    order, done = asyncio.run(run())

    assert order.index("right") <= PASSWORD_CHECKS_OF_ADDRESS_MAX
    assert done == [True] * 1_001


def test_too_many_from_everywhere_are_refused_at_once(monkeypatch):
    async def run():
        world = World(monkeypatch)
        count = PASSWORD_CHECKS_WAITING_MAX
        asked = [world.ask(f"{number}", Source(f"10.0.0.{number}", number)) for number in range(count)]
        await begun()
        with pytest.raises(BusyError, match="try again later"):
            await world.ask("one more", Source("10.0.1.1", count))
        assert (await world.end(asked)) == [True] * count
        return world.checks

    asyncio.run(run())


def test_the_same_credentials_are_one_check_and_nothing_is_left(monkeypatch):
    async def run():
        world = World(monkeypatch)
        asked = [world.ask("same", Source("10.0.0.1", number)) for number in range(100)]
        await begun()
        done = await world.end(asked)
        return world, done

    world, done = asyncio.run(run())

    assert done == [True] * 100
    assert world.order == ["same"]
    assert world.checks.count == 1


@pytest.mark.parametrize("seconds", [0.0, 0.03, 0.4])
def test_a_wrong_password_is_refused_after_the_same_time_whatever_its_check_took(seconds):
    began = 1_000.0

    assert Verdict(False, seconds).due(began + seconds) == pytest.approx(began + PASSWORD_REFUSAL_SECONDS)


def test_a_wrong_password_whose_check_took_longer_is_refused_at_once():
    assert Verdict(False, 2.0).due(1_002.0) == 1_002.0
