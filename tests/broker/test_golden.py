"""Directories written by each released format can always be opened, with all their content.

`tests/golden/make.py` wrote them.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

import penstock
from support import Broker

GOLDEN = Path(__file__).parent.parent / "golden"
SETTLED_COUNT, ORDER_COUNT = 100, 400
LARGE = bytes(range(256)) * 400


@pytest.fixture(scope="module", params=sorted(path.name for path in GOLDEN.iterdir() if path.name.isdigit()))
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("golden") / "data"
    shutil.copytree(GOLDEN / request.param, directory)
    with Broker(directory) as broker:
        yield broker


def test_its_messages_are_there_in_order_without_the_settled_ones(opened: Broker) -> None:
    with penstock.connect(opened.uri()) as connection:
        found = list(connection.consume("orders", auto_ack=True, idle_timeout=4))

    expected = [f"order {number}".encode() for number in range(SETTLED_COUNT, ORDER_COUNT)]
    assert [message.body for message in found] == expected
    assert found[0].redelivered
    assert found[-1].routing_key == "order.created"


def test_a_message_larger_than_a_segment_is_there_with_its_headers(opened: Broker) -> None:
    with penstock.connect(opened.uri()) as connection:
        message = connection.get("large", auto_ack=True)

    assert message is not None
    assert message.body == LARGE
    assert dict(message.headers) == {"size": "large", "number": 7}


def test_its_topology_still_routes(opened: Broker) -> None:
    with penstock.connect(opened.uri()) as connection:
        assert [queue.name for queue in connection.admin.list_queues()] == ["large", "orders"]
        assert connection.admin.get_queue("orders").arguments == {"x-durability": "disk"}
        connection.publish(b"new", exchange="shop", routing_key="order.paid.late", mandatory=True)
        connection.publish(b"new", exchange="by-header", headers={"size": "large"}, mandatory=True)


def test_its_users_come_in_with_their_permissions(opened: Broker) -> None:
    uri = opened.uri("second", "reader", quote("a golden password"))
    with penstock.connect(uri) as connection, pytest.raises(penstock.AccessRefusedError):
        connection.declare_queue("refused")


def test_queues_with_a_log_of_their_own_are_there(tmp_path: Path) -> None:
    orders = [f"order {number}".encode() for number in range(ORDER_COUNT)]
    shutil.copytree(GOLDEN / "dedicated", tmp_path / "data")

    with Broker(tmp_path / "data") as broker, penstock.connect(broker.uri()) as connection:
        hot = connection.stream("hot")
        stored = [message.body for message in hot.read("first", until="next")]
        found = [message.body for message in connection.consume("work", auto_ack=True, idle_timeout=4)]

        assert stored == orders + orders[:SETTLED_COUNT]
        assert found == orders[SETTLED_COUNT:]
        assert [(group.name, group.offset) for group in hot.groups()] == [("readers", SETTLED_COUNT)]
        with hot.publisher("import") as publisher:
            assert publisher.last_sequence == SETTLED_COUNT
        assert [queue.name for queue in connection.admin.list_queues()] == ["hot", "work"]
