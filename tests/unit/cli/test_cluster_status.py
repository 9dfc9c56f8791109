"""`penstock cluster status` shows what the broker knows, and says for what the coordinator did not answer."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.cli import cluster
from penstock.client.cluster_records import ClusterShard, ClusterStatus

KNOWN = ClusterShard("meta", None, "mq-0", 7, led=True, min_in_sync=2, end_bytes=10, replicas=())
UNKNOWN = ClusterShard("shop.0.1", "shop", "", 0, led=False, min_in_sync=0, end_bytes=None, replicas=(), unknown=True)
FAULT = "coordinator 'http://etcd:2379' sent no answer"


def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *shards: ClusterShard) -> list[str]:
    """Return the rows of shards, and then what is said on stderr."""
    found = ClusterStatus("test", "mq-0", (), shards, FAULT if UNKNOWN in shards else "")
    connection = SimpleNamespace(admin=SimpleNamespace(cluster_status=lambda: found))
    monkeypatch.setattr(cluster, "connected", lambda *_: nullcontext(connection))
    cluster.status(cast(Any, None))
    printed = capsys.readouterr()
    rows = [line for line in printed.out.splitlines() if "meta" in line or "shop" in line]
    return [*rows, *printed.err.splitlines()]


def test_a_shard_for_which_the_coordinator_did_not_answer_is_shown_as_unknown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known, unknown, note = shown(monkeypatch, capsys, KNOWN, UNKNOWN)

    assert known.split()[1] == "mq-0"
    assert unknown.split()[:2] == ["shop", "?"]
    assert note == f"the coordinator did not answer for 1 shard: {FAULT}"


def test_nothing_is_said_where_the_coordinator_answered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(shown(monkeypatch, capsys, KNOWN)) == 1
