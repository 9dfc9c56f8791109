"""The row about a blank replica: how fast it catches up, and what others lose while they publish at half their rate."""

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

from bench.cluster_rows import SECTION, Serving, serving
from bench.device import stored_bytes
from bench.measure import Load
from bench.rows import Figure, Row, most
from support.broker import Broker, penstock_command
from support.serving_cluster import NAMES
from support.waiting import eventually

__all__ = ["catch_up_row"]

BODY_BYTES: Final = 4_096
LOAD: Final = ("--size", "1024", "--consumers", "0", "--persistent", "--in-flight", "1000")
CAUGHT_UP_S: Final = 600.0
LONG_S: Final = 3_600.0
POLL_S: Final = 0.02
INTERRUPTED: Final = 130
MB_PER_S: Final = 150.0
LOST_PERCENT: Final = 20.0


def catch_up_row(gigabytes: float) -> Row:
    figures = (
        Figure("copied", "MB"),
        Figure("rate", "MB/s", MB_PER_S),
        most("seconds", "s"),
        Figure("full_rate", "msg/s"),
        Figure("beside", "msg/s"),
        most("lost", "%", LOST_PERCENT),
    )
    title = f"a blank replica of {gigabytes:g} GB while others publish 1 KB at half their rate"
    return Row("cluster-catch-up", title, figures, _measure(gigabytes), "replicated", SECTION)


def _measure(gigabytes: float) -> Callable[[Load], dict[str, float]]:
    def measure(load: Load) -> dict[str, float]:
        with serving(load) as found:
            full = load.perf_amqp(found.amqp_uri, found.load.broker.pid, *LOAD)["confirmed_per_s"]
            blank = next(name for name in NAMES if name != found.leader)
            broker = found.cluster.brokers[blank]
            broker.kill()
            shutil.rmtree(broker.data_dir)
            eventually(lambda: _in_sync_count(found), len(NAMES) - 1, CAUGHT_UP_S)
            _fill(found.load, int(gigabytes * 1e9 / BODY_BYTES))
            half = full / 2
            seconds, copied, beside = _caught_up(found, broker, half)
        lost = max(0.0, 1 - beside / half) * 100
        mb = copied / 1e6
        return {
            "copied": mb,
            "rate": mb / seconds,
            "seconds": seconds,
            "full_rate": full,
            "beside": beside,
            "lost": lost,
        }

    return measure


def _fill(load: Load, count: int) -> None:
    flags = ("--size", str(BODY_BYTES), "--batch", "100", "--publishers", "1", "--consumers", "0", "--queues", "1")
    load.perf("throughput", *flags, "--messages", str(count), "--durability", "disk", seconds=LONG_S)


def _in_sync_count(found: Serving) -> int:
    """Return how many replicas of the virtual host are in sync, in the coordinator's record."""
    (path,) = found.cluster.coordinator.glob("shard-*.0.1.json")
    return len(json.loads(path.read_text())["record"]["in_sync"])


def _caught_up(found: Serving, broker: Broker, rate: float) -> tuple[float, int, float]:
    """Start a blank broker under load. Return the seconds and bytes until it is in sync, and the rate of the others."""
    command = [penstock_command(), "perf", "amqp", "--uri", found.amqp_uri, *LOAD, "--rate", f"{rate:.0f}"]
    load = subprocess.Popen([*command, "--seconds", str(LONG_S), "--output", "json"], stdout=subprocess.PIPE)
    try:
        begun = Event()
        started: list[float] = []
        watching = Thread(target=_watch, args=(broker.data_dir, started, begun))
        watching.start()
        broker.start()
        eventually(lambda: _in_sync_count(found), len(NAMES), CAUGHT_UP_S)
        ended = time.perf_counter()
        begun.set()
        watching.join()
        copied = stored_bytes(broker.data_dir)
        load.send_signal(signal.SIGINT)
        output, _ = load.communicate(timeout=60)
    finally:
        load.kill()
        load.wait()
    figures: dict[str, Any] = json.loads(output)
    if load.returncode != INTERRUPTED or figures.get("errors"):
        raise RuntimeError(f"the load beside the copy failed: {figures.get('errors')}")
    return ended - started[0], copied, float(figures["confirmed_per_s"])


def _watch(data_dir: Path, started: list[float], over: Event) -> None:
    """Enter when the first bytes of a log are there."""
    while not over.is_set() and not started:
        with suppress(FileNotFoundError):  # files are renamed meanwhile
            if any(path.stat().st_blocks for path in _logs(data_dir)):
                started.append(time.perf_counter())
        over.wait(POLL_S)


def _logs(data_dir: Path) -> list[Path]:
    return [path for path in data_dir.rglob("msgs.*") if "meta" not in path.parts and path.is_file()]
