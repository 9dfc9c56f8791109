"""Every hostile case against one broker, while a client that behaves is served: an answer, memory given back, nobody
else harmed, nothing broken in the log. `make test-hostile` prints the table."""

import os
import time

import pytest

from hostile import connections, contents
from hostile.siege import Row, Siege
from hostile.target import Case

CASES = [*connections.CASES, *contents.CASES]
# Of fewer the p99 would be the longest one, which the scheduler of a busy machine decides.
ROUND_TRIPS_MIN = 400
ATTACKS_MAX = 10
ROUND_TRIPS_AFTER = 20
IS_STRICT = os.environ.get("HOSTILE_STRICT") == "1"
SIGNS_OF_A_BUG = ("panicked", "Traceback", '"level": "error"', "[error")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_hostile_client_gets_an_answer_and_harms_nobody(siege: Siege, case: Case) -> None:
    before_mb, began = siege.memory_mb(), time.monotonic()

    answer = case.attack(siege.target)
    for _ in range(1, ATTACKS_MAX):
        if siege.bystander.figures(began).count >= ROUND_TRIPS_MIN:
            break
        case.attack(siege.target)

    siege.wait_for_round_trips(ROUND_TRIPS_AFTER)
    beside = siege.bystander.figures(began)
    after_mb = siege.settled_memory_mb(before_mb + case.grows_mb)
    siege.rows.append(Row(case.name, answer, before_mb, after_mb, beside))
    assert siege.bystander.is_alive()
    assert after_mb <= before_mb + case.grows_mb, f"{after_mb - before_mb:.0f} MB are kept"
    found = [line for line in siege.broker.log.splitlines() if any(sign in line for sign in SIGNS_OF_A_BUG)]
    assert not found, found[:5]
    if IS_STRICT:
        assert not siege.is_harmed(beside), f"{beside.p99_ms:.1f} ms, beside busy cores {siege.busy.p99_ms:.1f}"
