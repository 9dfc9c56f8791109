"""Writes a golden data directory with the broker of this checkout.

Run `python tests/golden/make.py tests/golden/1`, or for queues with own logs `python tests/golden/make.py
tests/golden/dedicated`, once for each released format. The directory is committed and never written again.
`tests/broker/test_golden.py` knows its content.
"""

import sys
from pathlib import Path
from typing import Final

import penstock

TESTS = Path(__file__).parent.parent

ORDERS: Final = [f"order {number}".encode() for number in range(400)]
SETTLED_COUNT: Final = 100
LARGE: Final = bytes(range(256)) * 400


def fill(connection: penstock.Connection) -> None:
    connection.declare_exchange("shop", "topic", durable=True)
    connection.declare_exchange("by-header", "headers", durable=True)
    connection.declare_queue("orders", arguments={"x-durability": "disk"})
    connection.declare_queue("large")
    connection.declare_queue("gone")
    connection.bind_queue("orders", "shop", "order.#")
    connection.bind_queue("large", "by-header", arguments={"x-match": "all", "size": "large"})
    connection.publish_many(ORDERS, exchange="shop", routing_key="order.created")
    connection.publish(LARGE, exchange="by-header", headers={"size": "large", "number": 7})
    connection.publish(b"dropped", routing_key="gone")
    connection.delete_queue("gone")
    for settled_count, message in enumerate(connection.consume("orders", prefetch=SETTLED_COUNT + 1)):
        if settled_count == SETTLED_COUNT:
            message.nack(requeue=True)
            break
        message.ack()


def fill_dedicated(connection: penstock.Connection) -> None:
    connection.declare_exchange("all", "fanout")
    connection.declare_stream("hot", dedicated=True)
    connection.declare_queue("work", arguments={"x-dedicated": True})
    connection.declare_queue("gone", arguments={"x-dedicated": True})
    for queue in ("hot", "work", "gone"):
        connection.bind_queue(queue, "all")
    connection.publish_many(ORDERS, exchange="all")
    connection.delete_queue("gone")
    connection.stream("hot").store("readers", SETTLED_COUNT)
    with connection.stream("hot").publisher("import") as publisher:
        publisher.publish_many(ORDERS[:SETTLED_COUNT])
    taken = [connection.get("work") for _ in range(SETTLED_COUNT)]
    for message in taken:
        assert message is not None
        message.ack()


def main(directory: Path) -> None:
    sys.path.insert(0, str(TESTS))
    from support import Broker

    sizes = ("--config", str(Path(__file__).with_name("small.toml")))
    with Broker(directory.absolute(), *sizes) as broker:
        with penstock.connect(broker.uri()) as connection:
            fill_one = fill_dedicated if directory.name == "dedicated" else fill
            connection.admin.put_user("reader", password="a golden password", tags=["monitoring"])
            connection.admin.create_vhost("second")
            connection.admin.set_permission("reader", "second", configure="", write="", read=".*")
            fill_one(connection)
        broker.stop()
    (directory.parent / f"{directory.name}.log").unlink()
    (directory / ".lock").unlink()
    # The machine's identity does not matter: the stop was clean.
    (directory / "node.json").write_text('{"format": 1, "boot_id": "00000000-0000-4000-8000-000000000000"}\n')


if __name__ == "__main__":
    main(Path(sys.argv[1]))
