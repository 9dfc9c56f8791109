"""Delayed messages over AMQP: what a million of them cost, and how late others are delivered meanwhile.

Lateness is the time from when a message was due by its publisher's clock, which is the broker's, to its arrival.
"""

import asyncio
import random
import struct
import time
from statistics import quantiles

from bench.amqp_link import Link, delayed_publish
from bench.device import anonymous_bytes, stored_bytes
from bench.measure import Load

__all__ = ["delayed_messages"]

COUNT_MAX = 1_000_000
BODY_BYTES = 100
BATCH = 1_000
LONG_MS = 24 * 3_600_000
# The others: so many a second, in groups, with delays between these bounds.
PER_SECOND, GROUPS_PER_SECOND = 1_000, 50
SHORT_MS = (200, 1_200)
EXCHANGE, QUEUE = "later", "due"
SETTLING_SECONDS = 2.0


def delayed_messages(load: Load, port: int) -> dict[str, float]:
    return asyncio.run(_measure(load, port, min(load.backlog, COUNT_MAX)))


async def _measure(load: Load, port: int, count: int) -> dict[str, float]:
    pid, data_dir = load.broker.pid, load.broker.data_dir
    async with Link(port) as link:
        await link.open_channel()
        await link.declare_delayed(EXCHANGE, QUEUE)
        memory, stored = anonymous_bytes(pid), stored_bytes(data_dir)
        message = b"".join(delayed_publish(EXCHANGE, QUEUE, LONG_MS, bytes(BODY_BYTES)))
        with load.counting_cpu(figures := {}, lambda: count):
            await link.publish_confirmed(message, count, BATCH)
        await asyncio.sleep(SETTLING_SECONDS)
    figures["stored"] = (stored_bytes(data_dir) - stored) / count
    figures["anonymous"] = (anonymous_bytes(pid) - memory) / 1e6
    late_ms = await _lateness(load, port)
    percentiles = quantiles(late_ms, n=100, method="inclusive")
    return figures | {"late_p50": percentiles[49], "late_p99": percentiles[98]}


async def _lateness(load: Load, port: int) -> list[float]:
    """Return by how many milliseconds each of the others was delivered after it was due."""
    count = int(load.seconds * PER_SECOND)
    async with Link(port) as publisher:
        await publisher.open_channel()
        consumer = Link(port)
        async with asyncio.TaskGroup() as tasks:
            received = tasks.create_task(_receive(consumer, count))
            tasks.create_task(_publish(publisher, count))
        return received.result()


async def _publish(link: Link, count: int) -> None:
    some = PER_SECOND // GROUPS_PER_SECOND
    started = time.perf_counter()
    for published in range(0, count, some):
        await asyncio.sleep(max(0.0, started + published / PER_SECOND - time.perf_counter()))
        await link.publish(b"".join(part for _ in range(some) for part in _due_soon()))


def _due_soon() -> list[bytes]:
    delay_ms = random.randint(*SHORT_MS)
    body = struct.pack(">q", time.time_ns() + delay_ms * 1_000_000).ljust(BODY_BYTES, b"\x00")
    return list(delayed_publish(EXCHANGE, QUEUE, delay_ms, body))


async def _receive(link: Link, count: int) -> list[float]:
    late_ms: list[float] = []
    async with link:
        await link.open_channel()
        async for body in link.consume(QUEUE):
            due_ns: int = struct.unpack(">q", body[:8])[0]
            late_ms.append((time.time_ns() - due_ns) / 1e6)
            if len(late_ms) == count:
                break
    return late_ms
