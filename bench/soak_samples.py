"""Samples of a soak: every ten seconds one of the broker's process, its directory, its log and its latency.

The disk is measured every second, as its peaks last for moments. Live bytes are what the broker's queues report, plus a
record's overhead per body; a message in several queues would count for each, and this load has none.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import penstock.aio
from bench.device import counted, stored_bytes
from bench.measure import TICKS_PER_SECOND
from bench.soak_load import Load
from support import Broker

__all__ = ["SAMPLE_SECONDS", "Sample", "Sampler", "percentile"]

SAMPLE_SECONDS = 10
# Header, head and one target of a record, its properties, and its entry in the segment's directory: docs/format.md.
RECORD_BYTES = 24 + 10 + 12 + 3 + 4


@dataclass(frozen=True)
class Sample:
    """One line of the samples. `excess_bytes` is the peak disk use of the period, less twice the live bytes."""

    at_seconds: float
    anonymous_bytes: int
    mapped_bytes: int
    disk_bytes: int
    disk_bytes_max: int
    live_bytes: int
    excess_bytes: int
    broker_cores: float
    load_cores: float
    descriptors: int
    threads: int
    confirmed: int
    acknowledged: int
    redelivered: int
    waiting: int
    visits: int
    compacted_bytes: int
    os_us: dict[str, float]
    disk_us: dict[str, float]
    # Of the whole machine, over a minute: shows other load.
    load_average: float = 0.0


class Sampler:
    """Measures from outside, except for one connection that lists the queues."""

    def __init__(self, broker: Broker, load: Load) -> None:
        self._broker = broker
        self._load = load
        self._began = time.perf_counter()
        self._cpu = self._cpu_seconds()

    async def samples(self) -> AsyncIterator[Sample]:
        """Yield a sample every ten seconds, until cancelled."""
        async with penstock.aio.connect(self._load.uri) as connection:
            next_at = self._began
            while True:
                looks: list[tuple[int, int]] = []
                for _ in range(SAMPLE_SECONDS):
                    next_at += 1
                    await asyncio.sleep(max(0.0, next_at - time.perf_counter()))
                    looks.append((stored_bytes(self._broker.data_dir), await live_bytes(connection)))
                yield await self._sample(looks)

    async def _sample(self, looks: list[tuple[int, int]]) -> Sample:
        pid = self._broker.pid
        before, self._cpu = self._cpu, self._cpu_seconds()
        spent = {key: after - before.get(key, 0.0) for key, after in self._cpu.items()}
        elapsed = spent.pop("elapsed")
        ledgers = self._load.ledgers.values()
        times = self._load.probe.taken()
        return Sample(
            at_seconds=round(time.perf_counter() - self._began, 1),
            anonymous_bytes=counted(pid, "status", "RssAnon") * 1_024,
            mapped_bytes=counted(pid, "status", "RssFile") * 1_024,
            disk_bytes=looks[-1][0],
            disk_bytes_max=max(stored for stored, _ in looks),
            live_bytes=looks[-1][1],
            excess_bytes=max(stored - 2 * live for stored, live in looks),
            broker_cores=round(spent.pop("broker") / elapsed, 3),
            load_cores=round(sum(spent.values()) / elapsed, 3),
            descriptors=descriptors(pid),
            threads=counted(pid, "status", "Threads"),
            confirmed=sum(ledger.confirmed for ledger in ledgers),
            acknowledged=sum(ledger.acknowledged for ledger in ledgers),
            redelivered=sum(ledger.redelivered for ledger in ledgers),
            waiting=sum(ledger.waiting for ledger in ledgers),
            visits=self._load.visits.count,
            compacted_bytes=await asyncio.to_thread(self._compacted_bytes),
            os_us=percentiles(times["os"]),
            disk_us=percentiles(times["disk"]),
            load_average=round(os.getloadavg()[0], 2),
        )

    def _cpu_seconds(self) -> dict[str, float]:
        probe = self._load.probe.pid
        seconds = {"elapsed": time.perf_counter(), "broker": cpu_seconds(self._broker.pid)}
        seconds["load"] = cpu_seconds(os.getpid())
        if probe is not None:
            seconds["probe"] = cpu_seconds(probe)
        return seconds

    def _compacted_bytes(self) -> int:
        lines = self._broker.scrape().splitlines()
        return next(
            int(float(line.split()[1])) for line in lines if line.startswith("penstock_compaction_bytes_total ")
        )


async def live_bytes(connection: penstock.aio.Connection) -> int:
    """Return the log bytes of the live messages of all queues."""
    return sum(
        queue.ready_bytes
        + queue.unacked_bytes
        + (queue.ready_count + queue.unacked_count) * (RECORD_BYTES + len(queue.name))
        for queue in await connection.admin.list_queues()
    )


def descriptors(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def percentiles(times: list[float]) -> dict[str, float]:
    return {"p50": percentile(times, 0.5), "p99": percentile(times, 0.99), "max": percentile(times, 1.0)}


def percentile(ascending: list[float], share: float) -> float:
    """Return the percentile, 0 for no times at all: the graph shows a window without a confirm."""
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))] if ascending else 0.0
