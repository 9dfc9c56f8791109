"""The errors of the model that the native module raises, on real logs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.model.errors import (
    InvalidArgumentError,
    NotFoundError,
    RefusedError,
    StorageError,
    Thing,
)
from penstock.native import Engine, NewQueue, NewRoute, Shard, StreamRetention, inspect_log, repair_log

JOBS, EVENTS = 1, 2


def make_engine() -> Engine:
    return Engine(segment_bytes_min=1 << 20, segment_bytes_max=1 << 22, segment_idle_ms=60_000)


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    engine = make_engine()
    shard = engine.open_shard("shop", str(tmp_path), page_cache_lost=False)
    shard.retain_queues([])
    shard.put_queues([NewQueue(id=JOBS, name="jobs"), NewQueue(id=EVENTS, name="events", retention=StreamRetention())])
    yield shard
    engine.close()


def test_a_queue_that_is_not_there_is_not_found(shard: Shard) -> None:
    with pytest.raises(NotFoundError) as caught:
        shard.purge_queue(77)

    assert caught.value.thing == Thing("queue", "77", "shop")


def test_a_route_that_the_tables_cannot_hold_is_a_bug_and_no_refusal(shard: Shard) -> None:
    with pytest.raises(RuntimeError, match="exchange 'nowhere' is not there"):
        shard.add_routes([NewRoute(exchange="nowhere", key="key", destination="jobs")])


def test_an_offset_behind_the_end_of_a_stream_is_refused_by_its_field(shard: Shard) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        shard.store_offset(EVENTS, "readers", 9)

    assert caught.value.field == "offset"
    assert str(caught.value) == (
        "stream 'events' in vhost 'shop' has no offset 9 yet: the next message gets 1; store an offset below 1"
    )


@pytest.mark.parametrize("length", [0, 300])
def test_a_name_that_the_log_cannot_hold_is_refused_by_its_field(shard: Shard, length: int) -> None:
    with pytest.raises(InvalidArgumentError) as of_group:
        shard.store_offset(EVENTS, "x" * length, 0)
    with pytest.raises(InvalidArgumentError) as of_owner:
        shard.reserve_lease(JOBS, "x" * length, 1, 0, 0)

    assert (of_group.value.field, of_owner.value.field) == ("group", "owner")
    assert f"has a name of {length} bytes" in str(of_group.value)


def test_a_lease_that_is_neither_there_nor_the_next_is_refused(shard: Shard) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        shard.reserve_lease(JOBS, "nightly", 5, 0, 0)

    assert caught.value.thing == Thing("owner of leases", "nightly", "shop")
    assert caught.value.way_out == "the next new one is 1"


def test_a_stream_has_no_leases_and_a_queue_no_offsets(shard: Shard) -> None:
    with pytest.raises(InvalidArgumentError, match=r"queue 'events' .* is a stream"):
        shard.reserve_lease(EVENTS, "nightly", 1, 0, 0)
    with pytest.raises(InvalidArgumentError, match=r"queue 'jobs' .* is not a stream"):
        shard.offset_at(JOBS, 0)


def test_a_shard_that_is_closed_says_so_as_a_fault_of_storage(shard: Shard) -> None:
    shard.close(delete=False)

    with pytest.raises(StorageError, match=r"log 'shop' failed: .*closed.*; repair the disk, then restart the broker"):
        shard.delete_queue(JOBS)


def test_a_log_that_cannot_be_opened_is_named_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "msgs.0000000001").write_bytes(b"no segment" * 100)
    engine = make_engine()
    try:
        with pytest.raises(StorageError) as opened:
            engine.open_shard("shop", str(tmp_path / "msgs.0000000001"), page_cache_lost=False)
    finally:
        engine.close()

    assert opened.value.thing == Thing("log", str(tmp_path / "msgs.0000000001"))
    assert opened.value.rule.startswith("cannot be opened: ")


def test_a_log_that_cannot_be_read_or_repaired_is_named_with_its_path(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")

    with pytest.raises(StorageError, match=f"log '{nowhere}' cannot be read: "):
        inspect_log(nowhere, verify=False)
    with pytest.raises(StorageError, match=f"log '{nowhere}' cannot be repaired: "):
        repair_log(nowhere, segment_bytes_min=1 << 20, segment_bytes_max=1 << 20)


def test_a_backup_that_its_target_refuses_names_the_target_and_the_file(shard: Shard, tmp_path: Path) -> None:
    target = tmp_path / "nowhere"

    with pytest.raises(StorageError) as caught:
        shard.begin_backup().write(str(target))

    assert caught.value.thing == Thing("backup", str(target))
    assert caught.value.rule.startswith("of virtual host 'shop' failed: cannot ")
    assert str(target) in caught.value.rule
    assert caught.value.way_out == "free space there or repair that disk, and try again; the broker goes on"


def test_no_refusal_of_the_engine_names_a_protocol(shard: Shard) -> None:
    for refused in (lambda: shard.offset_at(JOBS, 0), lambda: shard.reserve_lease(EVENTS, "nightly", 1, 0, 0)):
        with pytest.raises(RefusedError) as caught:
            refused()

        assert "Service" not in str(caught.value)
