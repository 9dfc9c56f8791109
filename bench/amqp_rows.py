"""Rows over AMQP 0-9-1, with `penstock perf amqp` as the load.

Where RabbitMQ is installed, it gets the same load in the same minute. LavinMQ's results with its own load tool are in
`peers`; the targets are half of its processor time and 1.5 times its rates.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.amqp_connections import idle_connections, opened_connections
from bench.amqp_delays import delayed_messages
from bench.disturbance import disturbed
from bench.measure import Load
from bench.rabbitmq import rabbitmq
from bench.rows import Figure, Row, cpu, most, rate
from support import Broker
from support.broker import free_ports

__all__ = ["AMQP_ROWS"]

AUTO_ACK = ("--in-flight", "0", "--auto-ack")
CONFIRMED = ("--persistent", "--in-flight", "1000", "--ack-batch", "100", "--prefetch", "4000")
LATENCY = ("--size", "16", "--rate", "10000", "--in-flight", "10000", "--ack-batch", "1")

Measured = dict[str, float]


class AmqpBroker(Broker):
    """Serves AMQP, too."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.amqp_port = free_ports(1)[0]
        super().__init__(folder / "data", "--amqp", f"127.0.0.1:{self.amqp_port}")

    @property
    def amqp_uri(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.amqp_port}/"


def beside_rabbitmq(found: Callable[[dict[str, Any]], Measured], *flags: str) -> Callable[[Load], Measured]:
    """Measure both; `found` reads the figures of a row from those of the load generator."""

    def measure(load: Load) -> Measured:
        with AmqpBroker(load.broker.data_dir.absolute().parent / "amqp") as broker:
            here = found(load.perf_amqp(broker.amqp_uri, broker.pid, *flags))
        peer = rabbitmq()
        there = {} if peer is None else found(load.perf_amqp(peer.uri, peer.pid, *flags))
        return here | {f"rabbitmq_{name}": value for name, value in there.items()}

    return measure


def alone(measured: Callable[[Load, int], Measured]) -> Callable[[Load], Measured]:
    """Measure Penstock only; `measured` gets the port of its listener."""

    def measure(load: Load) -> Measured:
        with AmqpBroker(load.broker.data_dir.absolute().parent / "amqp") as broker:
            return measured(replace(load, broker=broker), broker.amqp_port)

    return measure


def disturbed_delays(load: Load, port: int) -> Measured:
    """Return the ratio of the disturbed to the quiet delay, on the same broker in the same minute."""
    uri = f"amqp://guest:guest@127.0.0.1:{port}/"
    quiet = delays(load.perf_amqp(uri, load.broker.pid, *LATENCY))
    with disturbed(load):
        busy = delays(load.perf_amqp(uri, load.broker.pid, *LATENCY))
    return {"p50": busy["p50"], "p99": busy["p99"], "p99_ratio": busy["p99"] / quiet["p99"]}


def consumed(found: dict[str, Any]) -> Measured:
    """Return the rate of messages that went all the way."""
    counted = ["published", "consumed"] if found["confirmed"] == 0 else ["confirmed", "consumed"]
    return {"rate": min(found[f"{name}_per_s"] for name in counted), "broker_cpu_us": found["broker_cpu_us"]}


def delays(found: dict[str, Any]) -> Measured:
    times = found["end_to_end_us"]
    return {"p50": times["p50"], "p99": times["p99"], "broker_cpu_us": found["broker_cpu_us"]}


def throughput(key: str, title: str, size: int, flags: tuple[str, ...], wanted: tuple[float, float]) -> Row:
    figures = (rate(wanted[0]), cpu(wanted[1]), Figure("rabbitmq_rate", "msg/s"), rabbitmq_cpu())
    measure = beside_rabbitmq(consumed, "--size", str(size), *flags)
    return Row(key, title, figures, measure, "disk" if "--persistent" in flags else "os", "AMQP")


def rabbitmq_cpu() -> Figure:
    return Figure("rabbitmq_broker_cpu_us", "us/msg", lower_is_better=True)


AUTO_ACK_TITLE = "1 publisher without confirms, 1 consumer without acks"
CONFIRMED_TITLE = "1 publisher, persistent, 1,000 unconfirmed, 1 consumer, acks of 100"

AMQP_ROWS = (
    throughput("amqp-auto-ack", f"16 B, {AUTO_ACK_TITLE}", 16, AUTO_ACK, (933_000, 0.5)),
    throughput("amqp-auto-ack-large", f"1 KB, {AUTO_ACK_TITLE}", 1_024, AUTO_ACK, (454_000, 1.65)),
    throughput("amqp-confirmed", f"16 B, {CONFIRMED_TITLE}", 16, CONFIRMED, (555_000, 0.8)),
    throughput("amqp-confirmed-large", f"1 KB, {CONFIRMED_TITLE}", 1_024, CONFIRMED, (223_000, 2.6)),
    Row(
        "amqp-latency",
        "end to end at 10,000 msg/s, 16 B, confirms, an ack for each",
        (
            most("p50", "us"),
            most("p99", "us", 300),
            cpu(),
            most("rabbitmq_p50", "us"),
            most("rabbitmq_p99", "us"),
            rabbitmq_cpu(),
        ),
        beside_rabbitmq(delays, *LATENCY),
        section="AMQP",
    ),
    Row(
        "amqp-latency-disturbed",
        "the same while a script scrapes metrics and lists 10,000 queues in a loop",
        (most("p50", "us"), most("p99", "us"), most("p99_ratio", "times", 3)),
        alone(disturbed_delays),
        section="AMQP",
    ),
    Row(
        "amqp-idle",
        "10,000 idle connections",
        (most("resident", "B each", 8_192),),
        alone(idle_connections),
        section="AMQP",
    ),
    Row(
        "amqp-opens",
        "connections opened and closed, 50 at the same time, with a password checked before",
        (Figure("rate", "opened/s", 1_000), Figure("broker_cpu_us", "us each", lower_is_better=True)),
        alone(opened_connections),
        section="AMQP",
    ),
    Row(
        "amqp-delayed",
        "1 M delayed messages of 100 B, persistent, and 1,000/s that come due meanwhile",
        (
            most("stored", "B/msg", 250),
            most("anonymous", "MB", 30),
            most("late_p50", "ms"),
            most("late_p99", "ms", 10),
            cpu(),
        ),
        alone(delayed_messages),
        "disk",
        "AMQP",
    ),
)
