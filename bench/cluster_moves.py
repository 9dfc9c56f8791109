"""The row about planned hand-overs: what a program with the Python client notices when the leader is moved.

Its tasks publish one message after the other, each with its confirm. After an error they connect to the new leader.
"""

import asyncio
import time
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Final

import penstock
import penstock.aio
from bench.cluster_rows import SECTION, Serving, serving
from bench.measure import Load
from bench.rows import Figure, Row, most
from chaos.report import quantile
from support.serving_cluster import NAMES

__all__ = ["hand_over_row"]

BODY: Final = bytes(100)
QUEUE: Final = "moved"
TASKS: Final = 20
CALM_S: Final = 1.0
"""The time after a hand-over that belongs to it."""
PAUSE_MS: Final = 100.0


def hand_over_row(count: int) -> Row:
    figures = (
        Figure("moves", "moves"),
        most("errors", "errors", 0.0),
        most("pause_p50", "ms"),
        most("pause_p95", "ms", PAUSE_MS),
        most("pause_longest", "ms"),
        most("move_p50", "ms"),
    )
    title = f"the leader is moved while {TASKS} tasks of the Python client publish: the longest time without a confirm"
    return Row("cluster-move", title, figures, _measure(count), "replicated", SECTION)


def _measure(count: int) -> Callable[[Load], dict[str, float]]:
    def measure(load: Load) -> dict[str, float]:
        with serving(load) as found:
            return asyncio.run(_moved(found, count))

    return measure


class Program:
    """Tasks that publish, the times of their confirms, and the errors that they met."""

    def __init__(self, addresses: dict[str, str], leader: str) -> None:
        self.leader = leader
        self.errors = 0
        self.confirmed_at: list[float] = []
        self._addresses = addresses
        self._is_over = False

    async def run(self) -> None:
        while not self._is_over:
            # The leader comes first, and a client that is refused may try the others.
            others = [name for name in self._addresses if name != self.leader]
            hosts = ",".join(self._addresses[name] for name in (self.leader, *others))
            uri = f"penstock://guest:guest@{hosts}/"
            async with penstock.aio.connect(uri, durability="disk") as connection:
                results = await asyncio.gather(
                    *(self._publish(connection) for _ in range(TASKS)), return_exceptions=True
                )
            for result in results:
                if isinstance(result, penstock.PenstockError):
                    self.errors += 1
                elif isinstance(result, BaseException):
                    raise result

    def stop(self) -> None:
        self._is_over = True

    async def _publish(self, connection: penstock.aio.Connection) -> None:
        while not self._is_over:
            await connection.publish(BODY, routing_key=QUEUE)
            self.confirmed_at.append(time.perf_counter())


async def _moved(found: Serving, count: int) -> dict[str, float]:
    addresses = {name: broker.address for name, broker in found.cluster.brokers.items()}
    with penstock.connect(found.load.uri) as root:
        root.declare_queue(QUEUE)
    program = Program(addresses, found.leader)
    running = asyncio.create_task(program.run())
    windows = []
    with penstock.connect(found.load.uri) as operator:
        await asyncio.sleep(CALM_S)
        for _ in range(count):
            program.leader = NAMES[(NAMES.index(program.leader) + 1) % len(NAMES)]
            started = time.perf_counter()
            await asyncio.to_thread(operator.admin.move_leader, "/", program.leader)
            moved = time.perf_counter()
            await asyncio.sleep(CALM_S)
            windows.append((started, moved, time.perf_counter()))
            if running.done():
                break
    program.stop()
    await running
    pauses = [_longest_pause(program.confirmed_at, started, ended) for started, _, ended in windows]
    return {
        "moves": float(len(windows)),
        "errors": float(program.errors),
        "pause_p50": median(pauses),
        "pause_p95": quantile(pauses, 0.95),
        "pause_longest": max(pauses),
        "move_p50": median((moved - started) * 1e3 for started, moved, _ in windows),
    }


def _longest_pause(times: list[float], started: float, ended: float) -> float:
    """Return the longest time without a confirm between two moments, in milliseconds."""
    between = [started, *(each for each in times if started < each < ended), ended]
    return max(later - earlier for earlier, later in pairwise(between)) * 1e3
