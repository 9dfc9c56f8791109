"""A few seconds of `make chaos`: the leader of a cluster under load is killed once, and the history is checked."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from chaos.fault_script import run_faults
from chaos.faults import Kind
from chaos.network import Loopback
from chaos.run import Plan
from support.serving_cluster import NAMES

LINE_WIDTH = 140


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_killed_leader_loses_nothing_that_was_confirmed(tmp_path: Path) -> None:
    printed = StringIO()
    plan = Plan(
        seed=1,
        seconds=60,
        kinds=[Kind.KILL_LEADER],
        rate=200,
        directory=tmp_path / "chaos",
        fault_count_max=1,
        vhost_count=1,
    )

    found = run_faults(plan, Loopback(NAMES), Console(file=printed, width=LINE_WIDTH))

    print(printed.getvalue())
    assert found.wrong == []
    assert [(each.kind, list(each.hit), list(each.delivered)) for each in found.records] == [
        ("kill-leader", ["shop0"], ["shop0"])
    ]
    assert "1 faults" in printed.getvalue()
    assert "0 lost, 0 unexpected, 0 duplicates, 0 misplaced" in printed.getvalue()
