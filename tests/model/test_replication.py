"""The model of replication: no run breaks a promise, and without any one of its rules some run does.

REPLICATION_SEEDS says how many runs of each kind there are, REPLICATION_SEED where they begin; the seed of a run that
fails is in its message.
"""

import os
import random

import pytest

from model.replica import Rule, Violation
from model.world import run

COUNT = int(os.environ.get("REPLICATION_SEEDS", "500"))
FIRST = int(os.environ.get("REPLICATION_SEED", str(random.SystemRandom().randrange(1_000_000_000))))
STEPS = {3: 1_000, 5: 2_000}
"""By the number of nodes."""
RARE_COUNT = 4_000
"""Of the seeds from 0 on, so many have to notice a missing rule; the rarest needs a few hundred."""
MINIMUM = {Rule.FLOOR: 2, Rule.EPOCH_START: 2}
"""The minimum of in-sync replicas that shows best what a rule is for. With one, no disk may be lost, so that a floor
protects nothing. Of the others, runs with one find nearly all."""


def _run(seed: int, node_count: int, min_in_sync: int, *, forfeits: bool = False, moves: bool = False) -> int:
    try:
        steps = STEPS[node_count]
        return len(
            run(seed, steps, node_count=node_count, min_in_sync=min_in_sync, forfeits=forfeits, moves=moves).committed
        )
    except Violation as violation:
        raise AssertionError(f"seed {seed}, {node_count} nodes, minimum {min_in_sync}: {violation}") from violation


@pytest.mark.parametrize(("node_count", "min_in_sync"), [(3, 2), (3, 1), (5, 3), (5, 2)])
def test_what_is_committed_stays(node_count: int, min_in_sync: int) -> None:
    print(f"REPLICATION_SEED={FIRST}")
    committed = [_run(FIRST + place, node_count, min_in_sync) for place in range(COUNT)]
    assert sum(committed) > COUNT / 2, "the runs hardly commit anything, so they prove nothing"


@pytest.mark.parametrize("min_in_sync", [2, 1])
def test_a_replica_may_acknowledge_early_if_a_crash_gives_up_its_seat(min_in_sync: int) -> None:
    print(f"REPLICATION_SEED={FIRST}")
    committed = [_run(FIRST + place, 3, min_in_sync, forfeits=True) for place in range(COUNT)]
    assert sum(committed) > COUNT / 2


@pytest.mark.parametrize(("node_count", "min_in_sync"), [(3, 1), (5, 2)])
def test_disks_of_replicas_that_left_are_deleted_and_nothing_is_lost(node_count: int, min_in_sync: int) -> None:
    print(f"REPLICATION_SEED={FIRST}")
    committed = [_run(FIRST + place, node_count, min_in_sync, moves=True) for place in range(COUNT // 2)]
    assert sum(committed) > COUNT / 4


@pytest.mark.parametrize("rule", Rule, ids=lambda rule: rule.name.lower())
def test_every_rule_is_needed(rule: Rule) -> None:
    for seed in range(RARE_COUNT):
        try:
            moves = rule is Rule.LEAVES_UNCOUNTED
            run(seed, STEPS[3], without=rule, min_in_sync=MINIMUM.get(rule, 1), moves=moves)
        except Violation:
            return
    pytest.fail(f"no run of {RARE_COUNT} notices when {rule.value}")
