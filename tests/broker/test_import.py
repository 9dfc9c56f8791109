"""The kept LavinMQ directory becomes a broker's: users, routing, and every unacknowledged message in order."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.importing.writing import Imported, import_lavinmq
from penstock.model.errors import StorageError
from support import Broker
from support.waiting import eventually

GOLDEN = Path(__file__).parent.parent / "golden" / "lavinmq"


def take_over(target: Path) -> Imported:
    return import_lavinmq(GOLDEN, target, is_partial=False, on_progress=lambda _done, _total: None)


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    data_dir = tmp_path_factory.mktemp("import") / "data"
    take_over(data_dir)
    with Broker(data_dir) as started:
        yield started


@pytest.fixture(scope="module")
def shop(imported: Broker) -> Iterator[penstock.Connection]:
    with penstock.connect(imported.uri("shop", "root", "golden")) as connection:
        yield connection


def test_the_report_counts_what_came_and_what_was_done_with(tmp_path: Path) -> None:
    report = take_over(tmp_path / "data")

    assert (report.message_count, report.acked_count) == (10_000, 2_000)
    assert (report.user_count, report.vhost_count, report.queue_count, report.binding_count) == (2, 2, 2, 3)
    assert report.left_out == []


def test_the_log_that_was_written_holds_to_the_byte(tmp_path: Path) -> None:
    from penstock.storage import directory_name
    from penstock.storage.logs import inspect

    take_over(tmp_path / "data")

    segments = inspect(tmp_path / "data" / directory_name("shop"), verify=True)
    assert sum(segment["messages"] for segment in segments) == 10_000
    assert [segment["error"] for segment in segments if segment["error"]] == []


def test_messages_come_in_their_order_without_those_that_were_acknowledged(shop: penstock.Connection) -> None:
    assert {queue.name: queue.ready_count for queue in shop.admin.list_queues()} == {"audit": 3_500, "orders": 6_500}

    numbers = [*range(1_000, 7_000), *range(7_500, 8_000)]
    stream = shop.consume("orders", prefetch=10_000)
    messages = [message for _, message in zip(numbers, stream, strict=False)]

    assert [message.body for message in messages] == [f"order {number}".encode() for number in numbers]
    assert {message.exchange for message in messages} == {"shop"}
    assert [message.routing_key for message in messages[:4]] == ["order.1", "order.2", "order.0", "order.1"]
    assert messages[0].stored_at_ms == 1_760_000_001_000
    stream.close()
    eventually(lambda: shop.admin.get_queue("orders").ready_count, 6_500)


def test_properties_and_headers_come_along(shop: penstock.Connection) -> None:
    message = shop.get("orders")
    assert message is not None
    found = message.properties

    assert message.headers == {"number": 1_000, "nested": {"list": [1, "two", None, True]}, "share": 125.0}
    assert (found.content_type, found.priority, found.delivery_mode) == ("text/plain", 5, 2)
    assert (found.correlation_id, found.message_id, found.app_id) == ("c-1000", "m-1000", "shop")
    assert found.timestamp == 1_700_001_000
    message.nack()


def test_what_is_published_afterwards_goes_where_it_went(shop: penstock.Connection) -> None:
    shop.publish(b"new", exchange="shop", routing_key="order.9", mandatory=True)
    shop.publish(b"new", exchange="amq.headers", headers={"size": "large"}, mandatory=True)
    shop.publish(b"by policy", exchange="shop", routing_key="lost", mandatory=True)

    assert shop.admin.get_queue("orders").ready_count == 6_502
    assert shop.admin.get_queue("audit").ready_count == 3_501


def test_users_log_in_as_they_did_and_may_what_they_might(imported: Broker) -> None:
    with penstock.connect(imported.uri("shop", "anna", "golden")) as anna:
        anna.publish(b"by anna", exchange="shop", routing_key="none")
        with pytest.raises(penstock.AccessRefusedError):
            anna.declare_queue("mine")

    with penstock.connect(imported.uri("", "root", "golden")) as root:
        exported = root.admin.export_definitions().decode()
    assert exported.count('"argon2id"') == 2, "a log-in renews the digest"


def test_acknowledging_what_came_survives_a_restart(tmp_path: Path) -> None:
    take_over(tmp_path / "data")
    with Broker(tmp_path / "data") as broker:
        with penstock.connect(broker.uri("shop", "root", "golden")) as connection:
            assert connection.purge_queue("orders") == 6_500
        broker.restart()
        with penstock.connect(broker.uri("shop", "root", "golden")) as connection:
            assert (
                connection.admin.get_queue("audit").ready_count,
                connection.admin.get_queue("orders").ready_count,
            ) == (3_500, 0)


def test_a_corrupt_directory_is_refused_with_file_and_byte_and_nothing_is_left(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN, tmp_path / "corrupt")
    (segment,) = (path for path in (tmp_path / "corrupt").rglob("msgs.0000000003"))
    content = bytearray(segment.read_bytes())
    content[4:12] = b"\xff" * 8
    segment.write_bytes(content)

    with pytest.raises(StorageError, match=r"msgs\.0000000003' is corrupt at byte 4"):
        import_lavinmq(tmp_path / "corrupt", tmp_path / "data", is_partial=False, on_progress=lambda _a, _b: None)

    assert not (tmp_path / "data").exists()
