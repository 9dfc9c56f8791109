"""A few seconds of `make long-cluster`: brokers are drained and replaced under load, here by the same version."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from chaos.network import Loopback
from chaos.rolling import Rolling
from chaos.run import Plan, run
from support.broker import penstock_command
from support.serving_cluster import NAMES


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_brokers_are_replaced_under_load_and_nothing_that_was_confirmed_is_lost(tmp_path: Path) -> None:
    printed = StringIO()
    plan = Plan(1, 0.0, [], 200, tmp_path / "rolling", vhost_count=1, program=penstock_command())

    found = run(plan, Loopback(NAMES).places, Console(file=printed), lambda started: Rolling(started, 1.0).play())

    print(printed.getvalue())
    assert found.wrong == []
    assert [record.kind for record in found.records].count("replacement, drained") == len(NAMES)
