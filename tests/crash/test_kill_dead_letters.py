"""Kills the broker repeatedly while it dead-letters: no message is lost, and none is in a queue twice.

Messages go to a queue whose consumer rejects all of them, and to one where they expire. The dead letters of both go to
three queues, and to one where they expire again and go on to a last one. With three shards these queues are spread over
them. Nothing is consumed there before the end.
"""

import os
from pathlib import Path
from random import Random

import pytest

import penstock
from crash.load import Consumer, Publisher
from crash.test_kill import channel, drained
from penstock.v1 import messaging_pb2 as wire
from support import Broker
from support.waiting import eventually

ROUNDS = int(os.environ.get("DEAD_LETTER_KILLS", "24"))
SEED = int(os.environ.get("KILL_SEED", "0")) or Random().randrange(1, 1_000_000)
CONFIRMS = (1, 2_000)
SPAN = 1_000_000
SETTINGS = """
segment_bytes_min = 65536
segment_bytes_max = 1048576
"""
SOURCES = ("rejected", "expired")
DEAD = ("dead0", "dead1", "dead2", "last")
TTL = {"x-message-ttl": 50}


def declare(root: penstock.Connection) -> None:
    """Declare the queues; they get their shards in turn."""
    root.declare_exchange("dlx", "fanout")
    letters = {"x-dead-letter-exchange": "dlx"}
    root.declare_queue("rejected", arguments=letters)
    root.declare_queue("dead0")
    root.declare_queue("dead1")
    root.declare_queue("dead2")
    root.declare_queue("expired", arguments={**letters, "x-message-ttl": 1})
    for name in ("dead0", "dead1", "dead2"):
        root.bind_queue(name, "dlx")
    root.declare_queue("last")
    to_last = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "last"}
    root.declare_queue("middle", arguments={**to_last, **TTL})
    root.bind_queue("middle", "dlx")
    for name in SOURCES:
        root.declare_exchange(name, "fanout")
        root.bind_queue(name, name)


def round_under_load(broker: Broker, next_numbers: list[int], confirmed: set[int], random: Random) -> None:
    confirms = random.randint(*CONFIRMS)
    with channel(broker) as upward, channel(broker) as downward:
        publishers = [
            Publisher(upward, lambda number: SOURCES[number // SPAN], durability, next_numbers[at], confirms)
            for at, durability in enumerate((wire.DURABILITY_OS, wire.DURABILITY_DISK))
        ]
        consumer = Consumer(downward, "rejected", rejects=True)
        threads = (consumer, *publishers)
        for thread in threads:
            thread.start()
        publishers[random.randrange(2)].wait()
        broker.kill()
        for thread in threads:
            thread.join()
    assert [*publishers[0].refusals, *publishers[1].refusals, *consumer.failures] == []
    for at, publisher in enumerate(publishers):
        next_numbers[at] = publisher.next_number
        confirmed.update(publisher.confirmed)
    broker.start()


def ready(root: penstock.Connection, *names: str) -> int:
    return sum(root.admin.get_queue(name).ready_count for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 3])
def test_dead_letters_are_neither_lost_nor_doubled_by_kills(tmp_path: Path, shards: int) -> None:
    print(f"KILL_SEED={SEED} DEAD_LETTER_KILLS={ROUNDS}")
    random, confirmed, next_numbers = Random(SEED), set[int](), [0, SPAN]
    settings = tmp_path / "penstock.toml"
    settings.write_text(SETTINGS)
    with Broker(tmp_path / "data", "--config", str(settings), shards=shards) as broker:
        with penstock.connect(broker.uri()) as root:
            declare(root)

        for _ in range(ROUNDS):
            round_under_load(broker, next_numbers, confirmed, random)

        with channel(broker) as downward, penstock.connect(broker.uri()) as root:
            consumer = Consumer(downward, "rejected", rejects=True)
            consumer.start()
            eventually(lambda: ready(root, *SOURCES, "middle"), 0, 120)
            eventually(lambda: root.admin.get_queue("rejected").unacked_count, 0, 120)
            eventually(lambda: len({ready(root, name) for name in DEAD}), 1, 120)
            consumer.end()
        for name in DEAD:
            found = drained(broker, name)
            assert len(found) == len(set(found)), f"twice in {name}"
            assert confirmed <= set(found), f"lost from {name}"
            assert all(number < next_numbers[number // SPAN] for number in found)
    assert len(confirmed) > ROUNDS
