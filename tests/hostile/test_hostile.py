"""Every hostile case against one broker, while a well-behaved client is served.

Each case has an answer, memory is released, no other client is affected, and the log has no bug. `make test-hostile`
prints the table.
"""

import os

import pytest

from hostile import amqp_connections, amqp_contents, connections, contents
from hostile.siege import GROWS_MB_MAX, Siege
from hostile.target import Case

CASES = [*connections.CASES, *contents.CASES, *amqp_connections.CASES, *amqp_contents.CASES]
IS_STRICT = os.environ.get("HOSTILE_STRICT") == "1"
SIGNS_OF_A_BUG = ("panicked", "Traceback", '"level": "error"', "[error")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_hostile_client_gets_an_answer_and_harms_nobody(siege: Siege, case: Case) -> None:
    seen = siege.lay(case)

    assert siege.bystander.is_alive()
    assert seen.after_mb <= seen.before_mb + GROWS_MB_MAX, f"{seen.after_mb - seen.before_mb:.0f} MB are kept"
    found = [line for line in siege.broker.log.splitlines() if any(sign in line for sign in SIGNS_OF_A_BUG)]
    assert not found, found[:5]
    if IS_STRICT:
        assert not siege.is_harmed(seen.beside), f"{seen.beside.p99_ms:.1f} ms, quiet {siege.quiet.p99_ms:.1f}"
