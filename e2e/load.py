"""Load that keeps a history, for a pod.

It publishes numbered messages and consumes them until the file STOP exists, reconnects after every failure, then drains
the queue and reports the state of each number. Arguments: URI QUEUE STOP.
"""

import json
import os
import struct
import sys
import threading
import time
from pathlib import Path

import penstock
from penstock.client.errors import PenstockError

BATCH = 50
PAUSE_SECONDS = 0.02
IDLE_SECONDS = 5.0
# A batch takes milliseconds; one that waits this long met an absent broker.
INTERRUPTED_SECONDS = 1.0


class History:
    """Confirmed numbers, and how often each was received. One writer each."""

    def __init__(self) -> None:
        self.confirmed: set[int] = set()
        self.received: dict[int, int] = {}
        self.failures = 0
        self.interruptions = 0
        self.is_over = threading.Event()

    def verdict(self) -> dict[str, int]:
        lost = self.confirmed - set(self.received)
        return {
            "confirmed": len(self.confirmed),
            "lost": len(lost),
            "twice": sum(1 for count in self.received.values() if count > 1),
            "unconfirmed_received": len(set(self.received) - self.confirmed),
            "failures": self.failures,
            "interruptions": self.interruptions,
        }


def publish(uri: str, queue: str, stop: Path, history: History) -> None:
    """Publish. A batch with an unknown outcome counts as not confirmed; its numbers are not reused."""
    number = 0
    while not stop.exists():
        try:
            with penstock.connect(uri, timeout=10) as broker:
                while not stop.exists():
                    numbers = range(number, number + BATCH)
                    number += BATCH
                    started = time.monotonic()
                    broker.publish_many(
                        [struct.pack("<Q", each) for each in numbers], routing_key=queue, mandatory=True
                    )
                    history.confirmed.update(numbers)
                    history.interruptions += time.monotonic() - started > INTERRUPTED_SECONDS
                    time.sleep(PAUSE_SECONDS)
        except PenstockError:
            history.failures += 1
            time.sleep(0.5)


def consume(uri: str, queue: str, history: History) -> None:
    """Consume until the publisher has ended and nothing came for a while."""
    while True:
        try:
            with penstock.connect(uri, timeout=10) as broker:
                for message in broker.consume(queue, idle_timeout=IDLE_SECONDS):
                    (number,) = struct.unpack("<Q", message.body)
                    history.received[number] = history.received.get(number, 0) + 1
                    message.ack()
            if history.is_over.is_set():
                return
        except PenstockError:
            history.failures += 1
            time.sleep(0.5)


def main(uri: str, queue: str, stop: Path) -> None:
    history = History()
    consumer = threading.Thread(target=consume, args=(uri, queue, history))
    consumer.start()
    print("started", os.getpid(), flush=True)
    publish(uri, queue, stop, history)
    history.is_over.set()
    consumer.join()
    print(json.dumps(history.verdict()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
