"""Rows about three brokers of a cluster on loopback: rates and times of confirms.

A single broker gets the same load in the same run. A durable message is confirmed when it is on the disks of all three,
which are one disk here. NATS JetStream gets the same load where it is installed, and RabbitMQ's quorum queues, on three
nodes, the same load over AMQP.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from bench import nats
from bench.measure import Load
from bench.rabbitmq import RabbitMq, rabbitmq_cluster
from bench.rows import Figure, Row, most, rate
from bench.sync_time import round_trip_us, sync_us
from support.serving_cluster import ServingCluster

__all__ = ["CLUSTER_ROWS", "PEER_ROWS", "SECTION", "Serving", "serving"]

SECTION: Final = "Clusters"
REPLICATED: Final = "replicated"
ONE: Final = "--batch 100 --publishers 1 --queues 1 --in-flight 1000"
MANY: Final = "--publishers 100 --queues 100 --in-flight 100"
AMQP_ONE: Final = "--publishers 1 --queues 1 --in-flight 1000"
PUBLISH: Final = ("--size", "100", "--consumers", "0")
LATENCY_RATE: Final = "200"
"""Messages a second: rarely enough that none waits for the sync of the one before."""
RATIO: Final = 0.45
EXCESS_US: Final = 300.0
SYNCED_AT_ONCE: Final = 3
NATS_SYNCED: Final = nats.Sync("always", 20_000)
NATS_DEFAULT: Final = nats.Sync("2m", 300_000)
NATS_ONE: Final = ("async", "--clients", "1", "--batch", "1000")
NATS_MANY: Final = ("async", "--clients", "100", "--batch", "100")
NATS_TIMED: Final = nats.Sync("always", 1_000)
NATS_SLOWLY: Final = ("sync", "--clients", "1", "--sleep", "5ms")

Measured = dict[str, float]


@dataclass(frozen=True, slots=True)
class Serving:
    """A cluster that serves, all in sync, and a load that goes to the leader of `/`."""

    cluster: ServingCluster
    leader: str
    load: Load

    @property
    def amqp_uri(self) -> str:
        return f"amqp://guest:guest@{self.cluster.amqp[self.leader]}/"


@contextmanager
def serving(load: Load) -> Iterator[Serving]:
    """Start a cluster with blank disks."""
    root = folder(load) / "cluster"
    root.mkdir()
    with ServingCluster(root, shards=1) as cluster:
        cluster.until_all_in_sync()
        leader = cluster.leader()
        yield Serving(cluster, leader, replace(load, broker=cluster.brokers[leader]))


def folder(load: Load) -> Path:
    """Return the folder of a run."""
    return load.broker.data_dir.absolute().parent


def published(flags: str, peer: tuple[str, ...]) -> Callable[[Load], Measured]:
    """Publish with confirms: to a single broker at `disk`, to a cluster, and to the peer with its flags."""

    def measure(load: Load) -> Measured:
        single = _published(load, flags)
        with serving(load) as found:
            rate = _published(found.load, flags)
        found_there = {}
        if peer and nats.is_installed():
            found_there["nats_rate"] = nats.measured(NATS_SYNCED, *peer).rate
            found_there["nats_unsynced_rate"] = nats.measured(NATS_DEFAULT, *peer).rate
        return {"rate": rate, "single_rate": single, "ratio": rate / single} | found_there

    return measure


def _published(load: Load, flags: str) -> float:
    found = load.perf("throughput", *PUBLISH, *flags.split(), "--durability", "disk")
    return float(found["confirmed_per_s"])


def confirm_times(load: Load) -> Measured:
    """Time confirms of single messages, one sync, and one round trip."""
    flags = ("--size", "100", "--rate", LATENCY_RATE, "--durability", "disk")
    single = load.perf("latency", *flags)["latency_us"]
    before = sync_us(folder(load))
    with serving(load) as found:
        times = found.load.perf("latency", *flags)["latency_us"]
    there = {"nats_p50": nats.measured(NATS_TIMED, *NATS_SLOWLY).p50_us} if nats.is_installed() else {}
    sync, trip = (before + sync_us(folder(load))) / 2, round_trip_us()
    return {
        "p50": times["p50"],
        "p99": times["p99"],
        "single_p50": single["p50"],
        "sync": sync,
        "sync_of_three": sync_us(folder(load), SYNCED_AT_ONCE),
        "round_trip": trip,
        "excess": times["p50"] - sync - trip,
    } | there


def over_amqp(flags: str) -> Callable[[Load], Measured]:
    """Publish persistent messages with confirms over AMQP, to quorum queues of both."""

    def measure(load: Load) -> Measured:
        with serving(load) as found:
            here = _over_amqp(load, found.amqp_uri, found.load.broker.pid, flags)
        peer: RabbitMq | None = rabbitmq_cluster()
        there = {} if peer is None else _over_amqp(load, peer.uri, peer.pid, flags)
        return here | {f"rabbitmq_{name}": value for name, value in there.items()}

    return measure


def _over_amqp(load: Load, uri: str, pid: int, flags: str) -> Measured:
    quorum = (*PUBLISH, "--persistent", "--quorum")
    rate = load.perf_amqp(uri, pid, *quorum, *flags.split())
    times: dict[str, Any] = load.perf_amqp(uri, pid, *quorum, "--rate", LATENCY_RATE)["latency_us"]
    return {"rate": rate["confirmed_per_s"], "p50": times["p50"]}


def beside_single(key: str, title: str, flags: str, peer: tuple[str, ...] = ()) -> Row:
    figures = (rate(None), Figure("single_rate", "msg/s"), Figure("ratio", "times", RATIO))
    of_peer = (Figure("nats_rate", "msg/s"), Figure("nats_unsynced_rate", "msg/s")) if peer else ()
    return Row(key, title, (*figures, *of_peer), published(flags, peer), REPLICATED, SECTION)


def amqp_row(key: str, title: str, flags: str) -> Row:
    figures = (rate(None), most("p50", "us"), Figure("rabbitmq_rate", "msg/s"), most("rabbitmq_p50", "us"))
    return Row(key, title, figures, over_amqp(flags), REPLICATED, SECTION)


CLUSTER_ROWS = (
    beside_single("cluster-one", "100 B, 1 publisher, batches of 100, 1,000 unconfirmed, published", ONE, NATS_ONE),
    beside_single(
        "cluster-many-single",
        "100 B, 100 publishers and 100 queues, one message per stream message, 100 unconfirmed each, published",
        f"{MANY} --batch 1",
        NATS_MANY,
    ),
    beside_single("cluster-many-batched", "the same in batches of 100", f"{MANY} --batch 100"),
    Row(
        "cluster-latency",
        "confirm round trip at 200 msg/s, 100 B, beside one sync and one round trip",
        (
            most("p50", "us"),
            most("p99", "us"),
            most("single_p50", "us"),
            most("sync", "us"),
            most("sync_of_three", "us"),
            most("round_trip", "us"),
            most("excess", "us", EXCESS_US),
            most("nats_p50", "us"),
        ),
        confirm_times,
        REPLICATED,
        SECTION,
    ),
)

# They come last: RabbitMQ stays until the end of the process.
PEER_ROWS = (
    amqp_row(
        "cluster-amqp-one", "100 B over AMQP, persistent, 1 publisher, 1,000 unconfirmed, a quorum queue", AMQP_ONE
    ),
    amqp_row("cluster-amqp-many", "100 B over AMQP, persistent, 100 publishers and 100 quorum queues", MANY),
)
