"""The rows of the table: measurement, method, and target on two cores that broker and load share."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from bench import python_client
from bench.disturbance import disturbed
from bench.measure import Load

IDLE_SETTLING_SECONDS = 2
# Processor time has a resolution of a hundredth of a second: 0.1 % of a core over this time.
IDLE_SECONDS = 10
LATENCY = ("--size", "100", "--rate", "1000", "--durability", "os")


@dataclass(frozen=True)
class Figure:
    """One number of a row. `target` is the minimum or, when lower is better, the maximum."""

    key: str
    unit: str
    target: float | None = None
    lower_is_better: bool = False

    def is_reached(self, value: float) -> bool:
        return self.target is None or (value <= self.target if self.lower_is_better else value >= self.target)


@dataclass(frozen=True)
class Row:
    key: str
    title: str
    figures: tuple[Figure, ...]
    measure: Callable[[Load], dict[str, float]]
    durability: str = "os"
    section: str = "Message paths"


def cpu(target: float | None = None) -> Figure:
    return Figure("broker_cpu_us", "us/msg", target, lower_is_better=True)


def throughput(size: int, batch: int, consumers: int) -> Callable[[Load], dict[str, float]]:
    """Publish with confirms, 1,000 in flight; with a consumer, also consume and acknowledge."""

    def measure(load: Load) -> dict[str, float]:
        flags = f"--size {size} --batch {batch} --publishers 1 --consumers {consumers} --queues 1 --in-flight 1000"
        found = load.perf("throughput", *flags.split(), "--durability", load.durability)
        rate = min(found["confirmed_per_s"], found["consumed_per_s"]) if consumers else found["confirmed_per_s"]
        return {"rate": rate, "broker_cpu_us": found["broker_cpu_us"]}

    return measure


def latency(load: Load) -> dict[str, float]:
    found = load.perf("latency", *LATENCY)
    times = found["latency_us"]
    return {"p50": times["p50"], "p99": times["p99"], "broker_cpu_us": found.get("broker_cpu_us", 0.0)}


def disturbed_latency(load: Load) -> dict[str, float]:
    """Return the ratio of the disturbed to the quiet latency, on the same broker in the same minute."""
    quiet = latency(load)
    with disturbed(load):
        busy = latency(load)
    return {
        "p50": busy["p50"],
        "p99": busy["p99"],
        "p50_ratio": busy["p50"] / quiet["p50"],
        "p99_ratio": busy["p99"] / quiet["p99"],
    }


def idle(load: Load) -> dict[str, float]:
    time.sleep(IDLE_SETTLING_SECONDS)
    before = load.cpu_seconds()
    time.sleep(IDLE_SECONDS)
    return {
        "resident": load.resident_bytes() / 1e6,
        "core_percent": (load.cpu_seconds() - before) / IDLE_SECONDS * 100,
    }


def rate(target: float | None) -> Figure:
    return Figure("rate", "msg/s", target)


def most(key: str, unit: str, target: float | None = None) -> Figure:
    return Figure(key, unit, target, lower_is_better=True)


BATCHED = "16 B, 1 publisher, 1 consumer, batches of 100, 1,000 unconfirmed, confirms and acks"
SINGLE = "16 B, one message per stream message, 1,000 unconfirmed, published"
LARGE = "1 KB, 1 publisher, 1 consumer, batches of 100, confirms and acks"

ROWS = (
    Row("batched", BATCHED, (rate(3_000_000), cpu(0.25)), throughput(16, 100, 1)),
    Row("batched-disk", BATCHED, (rate(None), cpu()), throughput(16, 100, 1), durability="disk"),
    Row("single", SINGLE, (rate(500_000), cpu()), throughput(16, 1, 0)),
    Row("single-disk", SINGLE, (rate(None), cpu()), throughput(16, 1, 0), durability="disk"),
    Row("large", LARGE, (rate(300_000), cpu()), throughput(1_024, 100, 1)),
    Row("large-disk", LARGE, (rate(None), cpu()), throughput(1_024, 100, 1), durability="disk"),
    Row(
        "python-publish",
        "Python `await publish()`, 1,000 tasks on uvloop, 100 B",
        (rate(450_000), cpu()),
        python_client.publish_awaited,
    ),
    Row("python-publish-many", "Python `publish_many`, 100 B", (rate(1_500_000), cpu()), python_client.publish_many),
    Row(
        "python-consume",
        "Python `consume`, 100 B, into objects, acked",
        (rate(1_500_000), cpu()),
        python_client.consume,
    ),
    Row(
        "pure-grpcio",
        "Python on grpcio alone, `publish_many` in batches of 100, 100 B",
        (rate(200_000), cpu()),
        python_client.publish_many_pure,
    ),
    Row(
        "latency",
        "confirm round trip at 1,000 msg/s, 100 B",
        (most("p50", "us", 120), most("p99", "us", 500), cpu()),
        latency,
    ),
    Row(
        "latency-disturbed",
        "the same while a script scrapes metrics and lists 10,000 queues in a loop",
        (most("p50", "us"), most("p99", "us"), most("p50_ratio", "times", 1.7), most("p99_ratio", "times", 3)),
        disturbed_latency,
    ),
    Row("idle", "idle broker", (most("resident", "MB", 80), most("core_percent", "% of a core", 0.5)), idle),
)
