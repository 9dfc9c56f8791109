"""What AMQP publishers hear and get when the disk is full: they are told, and wait."""

from collections.abc import Callable
from pathlib import Path

import pika

from support import Broker, eventually
from support.broker import free_ports

SECONDS_MAX = 60


def test_a_full_disk_blocks_publishers_until_it_has_space(tmp_path: Path, small_disk: Callable[..., Path]) -> None:
    disk, port = small_disk(tmp_path / "disk", kilobytes=200 * 1_024), free_ports(1)[0]
    with (
        Broker(disk / "data", "--amqp", f"127.0.0.1:{port}", shards=1),
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection,
    ):
        told: list[str] = []
        connection.add_on_connection_blocked_callback(lambda _, frame: told.append(frame.method.reason))
        connection.add_on_connection_unblocked_callback(lambda *_: told.append("unblocked"))
        channel = connection.channel()
        channel.queue_declare("jobs", durable=True)

        def heard() -> list[str]:
            connection.process_data_events(time_limit=0.1)
            return told

        (disk / "other").write_bytes(bytes(150 << 20))
        eventually(heard, ["low on disk"])
        # Nothing says that this one arrived: it may wait, and must not be lost.
        channel.basic_publish("", "jobs", b"waits", pika.BasicProperties(delivery_mode=2))
        connection.process_data_events(time_limit=1)
        (disk / "other").unlink()

        eventually(heard, ["low on disk", "unblocked"])
        eventually(lambda: channel.basic_get("jobs", auto_ack=True)[2], b"waits")
