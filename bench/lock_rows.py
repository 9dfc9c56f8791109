"""Rows about locks: how long the broker's threads wait for those of its logs while several connections publish.

A log has one lock, so publishers of one log take turns. Virtual hosts, and the shards of one, share no lock: their
publishers must not wait for each other.
"""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import penstock
from bench.measure import Load, administration, output_flags
from bench.rows import Row, most
from support import Broker
from support.broker import penstock_command

__all__ = ["LOCK_ROWS"]

IO_THREADS = 2
PUBLISHERS_EACH = 2
METRIC = "penstock_lock_wait_seconds_total"


class ThreadedBroker(Broker):
    """Has two threads for connections, also on a machine with fewer cores."""

    def __init__(self, folder: Path, shards: int) -> None:
        folder.mkdir()
        settings = folder / "settings.toml"
        settings.write_text(f"io_threads = {IO_THREADS}\n")
        super().__init__(folder / "data", "--config", str(settings), shards=shards)

    @property
    def lock_wait_seconds(self) -> float:
        lines = (line for line in self.scrape().splitlines() if line.startswith(METRIC))
        return sum(float(line.split()[-1]) for line in lines)


def waits(vhost_count: int, shard_count: int) -> Callable[[Load], dict[str, float]]:
    """Publish to each log over two connections; `waited` is the part of the threads' time that is spent waiting."""

    def measure(load: Load) -> dict[str, float]:
        folder = load.broker.data_dir.absolute().parent / "threaded"
        with ThreadedBroker(folder, shard_count) as broker:
            vhosts = [f"load-{number}" for number in range(vhost_count)] if vhost_count > 1 else [""]
            with penstock.connect(broker.uri()) as connection:
                admin = administration(connection)
                for name in filter(None, vhosts):
                    admin.create_vhost(name)
                    admin.set_permission("guest", configure=".*", write=".*", read=".*", vhost=name)
            publishers = PUBLISHERS_EACH * shard_count
            before, started = broker.lock_wait_seconds, time.perf_counter()
            loads = [
                subprocess.Popen(command(broker.uri(name), publishers, load), stdout=subprocess.DEVNULL)
                for name in vhosts
            ]
            if any(each.wait(timeout=load.seconds * 3 + 60) for each in loads):
                raise RuntimeError("a load ended with an error; the figure is worthless")
            seconds = time.perf_counter() - started
            return {"waited": (broker.lock_wait_seconds - before) / (seconds * IO_THREADS) * 100}

    return measure


def command(uri: str, publishers: int, load: Load) -> list[str]:
    flags = f"--size 16 --batch 100 --publishers {publishers} --queues {publishers} --consumers 0 --in-flight 1000"
    start = [penstock_command(), "perf", "throughput", "--uri", uri, "--seconds", str(load.seconds)]
    return [*start, *flags.split(), "--durability", load.durability, *output_flags("throughput")]


WAITED = most("waited", "% of the time", 2)

LOCK_ROWS = (
    Row(
        "locks-one",
        "lock waits of one virtual host with one shard, published to over 2 connections, 2 threads",
        (most("waited", "% of the time"),),
        waits(1, 1),
        section="Locks",
    ),
    Row(
        "locks-vhosts",
        "lock waits of two virtual hosts, each published to over 2 connections, 2 threads",
        (WAITED,),
        waits(2, 1),
        section="Locks",
    ),
    Row(
        "locks-shards",
        "lock waits of one virtual host with two shards, published to over 4 connections, 2 threads",
        (WAITED,),
        waits(1, 2),
        section="Locks",
    ),
)
