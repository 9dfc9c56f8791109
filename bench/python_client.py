"""Loads made by the Python client in this process, as a program that uses it would make them."""

import asyncio
import time

import uvloop

import penstock
from bench.measure import Load

BODY = bytes(100)
TASKS = 1_000
CHUNK = 50_000
QUEUE = "bench"


def publish_awaited(load: Load) -> dict[str, float]:
    return uvloop.run(_publish_awaited(load))


async def _publish_awaited(load: Load) -> dict[str, float]:
    """Run a thousand tasks, each awaiting the confirm of one message before the next."""
    figures: dict[str, float] = {}
    total = 0
    async with penstock.aio.connect(load.uri, **load.confirms) as connection:
        await connection.declare_queue(QUEUE)
        started = time.perf_counter()

        async def task() -> int:
            count = 0
            while not load.is_over(started):
                for _ in range(10):
                    await connection.publish(BODY, "", QUEUE)
                count += 10
            return count

        with load.counting_cpu(figures, lambda: total):
            total = sum(await asyncio.gather(*(task() for _ in range(TASKS))))
        figures["rate"] = total / (time.perf_counter() - started)
    return figures


def publish_many(load: Load) -> dict[str, float]:
    return _publish_many(load, native=True)


def publish_many_pure(load: Load) -> dict[str, float]:
    return _publish_many(load, native=False)


def _publish_many(load: Load, native: bool) -> dict[str, float]:
    figures: dict[str, float] = {}
    bodies = [BODY] * CHUNK
    total = 0
    with penstock.connect(load.uri, native=native, **load.confirms) as connection:
        connection.declare_queue(QUEUE)
        started = time.perf_counter()
        with load.counting_cpu(figures, lambda: total):
            while not load.is_over(started):
                total += connection.publish_many(bodies, routing_key=QUEUE)
        figures["rate"] = total / (time.perf_counter() - started)
    return figures


def consume(load: Load) -> dict[str, float]:
    """Fill a queue, then consume, read and acknowledge every message."""
    figures: dict[str, float] = {}
    count = 0
    with penstock.connect(load.uri, **load.confirms) as connection:
        connection.declare_queue(QUEUE)
        total = int(load.seconds * 1_000_000)
        for _ in range(total // CHUNK):
            connection.publish_many([BODY] * CHUNK, routing_key=QUEUE)
        started = time.perf_counter()
        with load.counting_cpu(figures, lambda: count):
            for message in connection.consume(QUEUE, prefetch=10_000):
                count += len(message.body) == len(BODY)
                message.ack()
                if count == total:
                    break
        figures["rate"] = count / (time.perf_counter() - started)
    return figures
