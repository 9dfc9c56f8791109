"""Writes the golden data directories in `tests/golden/format-1`, with the broker of this checkout.

Run `python tests/golden/make_format_1.py tests/golden/format-1` with a version that writes format 1 of the log. The
archives are committed and never written again. `tests/broker/test_upgrade.py` knows their content.
"""

import json
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import flight

import penstock

TESTS = Path(__file__).parent.parent

COUNT: Final = 400
SETTLED_COUNT: Final = 100
PADDING: Final = b"." * 900


def numbered(name: str, count: int = COUNT) -> list[bytes]:
    return [f"{name} {number}".encode() for number in range(count)]


def fill(connection: penstock.Connection) -> None:
    connection.declare_exchange("all", "fanout")
    for queue in ("orders", "gone", "leased"):
        connection.declare_queue(queue)
        connection.bind_queue(queue, "all")
    connection.declare_queue("work", arguments={"x-dedicated": True})
    connection.bind_queue("work", "all")
    connection.publish_many(numbered("order"), exchange="all")
    connection.delete_queue("gone")
    settle(connection, "work", SETTLED_COUNT)
    settle(connection, "orders", SETTLED_COUNT)
    message = connection.get("orders")
    assert message is not None
    message.nack(requeue=True)
    connection.reserve_lease("leased", "nightly", 1, 5)


def fill_stream(connection: penstock.Connection, address: str) -> None:
    connection.declare_stream("events")
    stream = connection.stream("events")
    stream.publish_many(numbered("event"))
    stream.store("readers", SETTLED_COUNT)
    with stream.publisher("import") as publisher:
        publisher.publish_many(numbered("imported", SETTLED_COUNT))
    client = flight.FlightClient(f"grpc://{address}")
    options = flight.FlightCallOptions(headers=[(b"authorization", b"Basic Z3Vlc3Q6Z3Vlc3Q=")])
    for batch in range(3):
        command = {"vhost": "/", "stream": "events", "producer": "job/0", "batch": batch}
        table = pa.table({"body": pa.array(numbered(f"batch {batch}", 10), pa.binary())})
        writer, results = client.do_put(flight.FlightDescriptor.for_command(json.dumps(command)), table.schema, options)
        with writer:
            writer.write_table(table)
            writer.done_writing()
            while results.read() is not None:
                pass
    client.close()


def fill_segments(connection: penstock.Connection, data_dir: Path) -> None:
    """Leave segments with few live messages, until compaction has rewritten one."""
    connection.declare_queue("slow")
    connection.declare_queue("busy")
    connection.publish_many(numbered("slow", 40), exchange="", routing_key="slow")
    for _ in range(200):
        connection.publish_many([PADDING] * 200, exchange="", routing_key="busy")
        settle(connection, "busy", 200)
        if any(data_dir.glob("*/msgs.*.2")):
            return
        time.sleep(0.1)
    raise SystemExit("nothing was rewritten")


def settle(connection: penstock.Connection, queue: str, count: int) -> None:
    for settled_count, message in enumerate(connection.consume(queue, prefetch=count), 1):
        message.ack()
        if settled_count == count:
            return


def main(target: Path) -> None:
    sys.path.insert(0, str(TESTS))
    from support import Broker

    config = ("--config", str(Path(__file__).with_name("small.toml")))
    for name in ("stopped", "killed"):
        with tempfile.TemporaryDirectory() as folder, Broker(Path(folder) / "data", *config) as broker:
            with penstock.connect(broker.uri()) as connection:
                connection.admin.create_vhost("second")
                fill(connection)
                fill_stream(connection, broker.address)
                fill_segments(connection, broker.data_dir)
                if name == "killed":
                    settle(connection, "orders", 10)
                    connection.publish_many(numbered("late", 20), exchange="", routing_key="orders")
                    broker.kill()
            if name == "stopped":
                broker.stop()
            (broker.data_dir / ".lock").unlink()
            with tarfile.open(target / f"{name}.tgz", "w:gz") as archive:
                archive.add(broker.data_dir, "data")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
