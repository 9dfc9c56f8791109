"""Shared work is done once, even when waiters leave."""

import asyncio

import pytest

from penstock.kit.single_flight import SingleFlight
from penstock.model.errors import FaultError, Thing

FULL = FaultError(Thing("server", "x"), "is busy", "try again later")


class World:
    def __init__(self, waiting_max=100):
        self.runs = 0
        self.may_end = asyncio.Event()
        self.error = None
        self.flight: SingleFlight[str] = SingleFlight("work", waiting_max, lambda: FULL)

    async def work(self):
        self.runs += 1
        await self.may_end.wait()
        if self.error is not None:
            raise self.error
        return self.runs

    def begin(self, count, key="key"):
        return [asyncio.ensure_future(self.flight.run(key, self.work)) for _ in range(count)]


def play(scenario, **options):
    async def run():
        await scenario(World(**options))

    asyncio.run(run())


async def ticks():
    for _ in range(10):
        await asyncio.sleep(0)


def test_all_who_want_it_at_once_share_one_run():
    async def scenario(world):
        same, other = world.begin(50), world.begin(1, "other")
        await ticks()
        world.may_end.set()

        assert len({await each for each in same}) == 1
        await other[0]
        assert world.runs == 2
        await world.flight.run("key", world.work)
        assert world.runs == 3, "a result is not kept"

    play(scenario)


def test_the_others_get_their_result_when_the_first_is_cancelled():
    async def scenario(world):
        first, second = world.begin(2)
        await ticks()
        first.cancel()
        await ticks()
        world.may_end.set()

        assert await second == 1

    play(scenario)


@pytest.mark.parametrize("error", [FaultError(Thing("server", "x"), "is down", "wait"), ZeroDivisionError()])
def test_all_hear_of_a_failure_and_the_next_tries_again(error):
    async def scenario(world):
        world.error = error
        waiting = world.begin(3)
        await ticks()
        world.may_end.set()

        for each in waiting:
            with pytest.raises(type(error)):
                await each
        world.error = None
        assert await world.flight.run("key", world.work) == 2

    play(scenario)


def test_work_that_its_waiters_left_counts_until_it_ends():
    async def scenario(world):
        for number in range(2):
            (waiter,) = world.begin(1, number)
            await ticks()
            waiter.cancel()
            await ticks()

        with pytest.raises(FaultError, match="busy"):
            await world.flight.run(2, world.work)
        world.may_end.set()
        await ticks()
        await world.flight.run(2, world.work)

    play(scenario, waiting_max=2)


def test_one_more_than_may_wait_is_refused_at_once():
    async def scenario(world):
        waiting = world.begin(2)
        await ticks()
        with pytest.raises(FaultError, match="busy"):
            await world.flight.run("other", world.work)

        world.may_end.set()
        await asyncio.gather(*waiting)
        await world.flight.run("other", world.work)

    play(scenario, waiting_max=2)
