"""The frozen classes of rows that go to the engine and come from it."""

import re
from pathlib import Path

import pytest

import penstock.native
from penstock._core import ChannelTls
from penstock.native import (
    Engine,
    LeaseOwnerState,
    LeaseState,
    NamedCertificate,
    NewQueue,
    NewRoute,
    QueueCounts,
    StreamRetention,
    StreamState,
)


def test_a_record_is_built_by_keyword_and_equals_another_with_the_same_fields() -> None:
    assert QueueCounts(ready_count=3) == QueueCounts(ready_count=3, unacked_count=0)
    assert QueueCounts(ready_count=3) != QueueCounts(ready_count=4)
    with pytest.raises(TypeError):
        QueueCounts(3)  # type: ignore[call-arg]


def test_no_call_takes_or_returns_a_bare_tuple_or_a_dictionary_but_metrics() -> None:
    stub = Path(penstock.native.__file__).parents[1] / "_core.pyi"

    found = [line.strip() for line in stub.read_text().splitlines() if re.search(r"\b(?:tuple|dict)\[", line)]

    assert set(found) == {"def metrics(self) -> dict[str, float]:"}


def test_a_record_cannot_be_changed() -> None:
    counts = QueueCounts(ready_count=3)

    with pytest.raises(AttributeError):
        counts.ready_count = 4
    assert counts.ready_count == 3


def test_a_record_shows_its_fields() -> None:
    assert "ready_count: 3" in repr(QueueCounts(ready_count=3))


def test_a_record_shows_no_private_key() -> None:
    named = NamedCertificate(name="a.example", chain=b"", key=b"KEY")
    tls = ChannelTls(authorities="", certificate="", key="KEY", server_name="")

    for shown in (repr(named), repr(tls)):
        assert "KEY" not in shown
        assert "75, 69, 89" not in shown
    assert (named.key, tls.key) == (b"KEY", "KEY")


def test_fields_come_back_as_they_were_given() -> None:
    lease = LeaseState(number=7, message_count=2, bytes=30, reserved_at_ms=1_000)
    owner = LeaseOwnerState(name="nightly", acked=6, leases=[lease])
    route = NewRoute(exchange="x", key="k", match=b"\x01\xff", to_exchange=True, destination="y")
    queue = NewQueue(id=3, name="events", level="disk", retention=StreamRetention(age_ms_max=60_000))

    assert owner.leases == [lease]
    assert (route.match, route.to_exchange, route.destination) == (b"\x01\xff", True, "y")
    assert (queue.level, queue.least_level, queue.retention) == ("disk", None, StreamRetention(age_ms_max=60_000))


def test_the_engine_takes_and_returns_records(tmp_path: Path) -> None:
    engine = Engine(segment_bytes_min=1 << 20, segment_bytes_max=1 << 22, segment_idle_ms=60_000)
    try:
        shard = engine.open_shard("shop", str(tmp_path), page_cache_lost=False)
        shard.retain_queues([])
        shard.put_queues([NewQueue(id=1, name="jobs"), NewQueue(id=2, name="events", retention=StreamRetention())])
        shard.put_exchange("orders", "topic", None)
        route = NewRoute(exchange="orders", key="#", destination="jobs")
        shard.add_routes([route])

        assert shard.route("orders", "any", None) == ["jobs"]
        assert shard.queue_counts([1]) == [QueueCounts()]
        assert shard.stream_extents([2]) == [StreamState(first=1, next=1)]
        assert shard.leases(1) == []
        shard.remove_route(route)
        assert shard.route("orders", "any", None) == []
        with pytest.raises(ValueError, match="level 'tape' is neither"):
            shard.put_queues([NewQueue(id=3, name="other", level="tape")])
    finally:
        engine.close()
