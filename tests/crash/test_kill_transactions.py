"""Kills the broker repeatedly while an AMQP client does jobs in transactions: each waits, or has all its results once.

A job is a number. Its transaction acks it, and stores one result more than its last digit says, in each of two queues.
"""

import os
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

import penstock
from support import Broker
from support.broker import free_ports

ROUNDS = int(os.environ.get("TRANSACTION_KILLS", "12"))
SEED = int(os.environ.get("KILL_SEED", "0")) or Random().randrange(1, 1_000_000)
JOBS = 3_000
QUEUES = ("results", "copies")
SETTINGS = """
segment_bytes_min = 65536
segment_bytes_max = 1048576
"""


class Worker(threading.Thread):
    """Does jobs until the broker dies, and notes which commits were answered."""

    def __init__(self, port: int, done: set[int], stops_at: int) -> None:
        super().__init__()
        self.port = port
        self.done = done
        self.stops_at = stops_at
        self.is_due = threading.Event()

    def run(self) -> None:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.port, socket_timeout=60))
        with suppress(AMQPError, OSError):  # the broker is killed
            self.work(connection.channel())
        with suppress(AMQPError, OSError):
            connection.close()
        self.is_due.set()

    def work(self, channel: BlockingChannel) -> None:
        channel.basic_qos(prefetch_count=20)
        channel.tx_select()
        for count, (method, _, body) in enumerate(channel.consume("jobs"), 1):
            channel.basic_ack(method.delivery_tag)
            for queue in QUEUES:
                for _ in range(int(body) % 10 + 1):
                    channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))
            channel.tx_commit()
            self.done.add(int(body))
            if count == self.stops_at:
                self.is_due.set()


def give(port: int) -> None:
    """Publish the jobs in one transaction."""
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, socket_timeout=60))
    channel = connection.channel()
    channel.tx_select()
    for number in range(JOBS):
        channel.basic_publish("", "jobs", str(number).encode(), pika.BasicProperties(delivery_mode=2))
    channel.tx_commit()
    connection.close()


def drained(port: int, queue: str) -> Counter[int]:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, socket_timeout=60))
    found: Counter[int] = Counter()
    channel = connection.channel()
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            break
        found[int(body)] += 1
    connection.close()
    return found


@pytest.mark.slow
def test_a_transaction_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    print(f"KILL_SEED={SEED} TRANSACTION_KILLS={ROUNDS}")
    random, done, port = Random(SEED), set[int](), free_ports(1)[0]
    settings = tmp_path / "penstock.toml"
    settings.write_text(SETTINGS)
    with Broker(tmp_path / "data", "--config", str(settings), "--amqp", f"127.0.0.1:{port}", shards=1) as broker:
        with penstock.connect(broker.uri()) as root:
            for name in ("jobs", *QUEUES):
                root.declare_queue(name)
        give(port)

        for _ in range(ROUNDS):
            workers = [Worker(port, done, random.randint(1, 60)) for _ in range(2)]
            for worker in workers:
                worker.start()
            workers[0].is_due.wait(120)
            broker.kill()
            for worker in workers:
                worker.join()
            broker.start()

        waiting, results, copies = (drained(port, queue) for queue in ("jobs", *QUEUES))
    assert results == copies
    assert all(count == number % 10 + 1 for number, count in results.items())
    assert set(waiting) | set(results) == set(range(JOBS))
    assert not set(waiting) & set(results)
    assert done <= set(results)
    assert len(done) > ROUNDS
