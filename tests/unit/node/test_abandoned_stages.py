"""Stages that the broker deletes because nothing will publish their rows."""

import asyncio
from types import SimpleNamespace
from typing import Any

from penstock.model.errors import FaultError, Thing
from penstock.node.abandoned_stages import AbandonedStages
from support.grpc_fakes import FakeClock

DAY_MS = 86_400_000


class FakeStages:
    """Stages without decisions, by name, with the time of their last row."""

    def __init__(self, **last_staged_ms: int) -> None:
        self.last_staged_ms = last_staged_ms
        self.fault: FaultError | None = None

    async def undecided(self):
        if self.fault is not None:
            raise self.fault
        return [(SimpleNamespace(name=name, id=name), at) for name, at in self.last_staged_ms.items()]

    async def delete_abandoned(self, queue) -> int:
        del self.last_staged_ms[queue.name]
        return 1


class FakeVhosts:
    def __init__(self, *stages: FakeStages) -> None:
        self.vhosts = [SimpleNamespace(name=str(number), stages=each) for number, each in enumerate(stages)]

    def all(self) -> Any:
        return self.vhosts


def test_a_stage_without_new_rows_for_a_week_is_deleted():
    clock, stages = FakeClock(), FakeStages(old=500_000, young=500_001)
    abandoned = AbandonedStages(FakeVhosts(stages), clock, 7 * DAY_MS)

    asyncio.run(abandoned.look())
    assert list(stages.last_staged_ms) == ["old", "young"]
    clock.ms = 500_001 + 7 * DAY_MS
    asyncio.run(abandoned.look())

    assert list(stages.last_staged_ms) == ["young"]


def test_a_stage_that_is_found_empty_twice_in_a_row_is_deleted():
    stages = FakeStages(empty=0, used=0)
    abandoned = AbandonedStages(FakeVhosts(FakeStages(), stages), FakeClock(), 7 * DAY_MS)

    asyncio.run(abandoned.look())
    assert list(stages.last_staged_ms) == ["empty", "used"]
    stages.last_staged_ms["used"] = 999_999
    asyncio.run(abandoned.look())
    assert list(stages.last_staged_ms) == ["used"]
    stages.last_staged_ms["used"] = 0
    asyncio.run(abandoned.look())

    assert list(stages.last_staged_ms) == ["used"], "it had rows meanwhile"


def test_a_vhost_with_a_fault_keeps_nothing_from_the_others():
    broken, stages = FakeStages(old=1), FakeStages(old=1)
    broken.fault = FaultError(Thing("vhost", "0"), "has a fault", "restart")
    clock = FakeClock()
    clock.ms = 8 * DAY_MS

    asyncio.run(AbandonedStages(FakeVhosts(broken, stages), clock, 7 * DAY_MS).look())

    assert stages.last_staged_ms == {}
