"""Rows about durability and size.

They cover durability disk, a backlog and the start after a kill, a hundred thousand queues, and ten thousand bindings,
targets and consumers. `--backlog` and `--queues` reduce them for a machine with little time.
"""

import asyncio
import time
from collections.abc import Callable

import penstock
from bench.device import anonymous_bytes, most_file_bytes, stored_bytes, written_bytes
from bench.measure import Load, administration
from bench.rows import Figure, Row, cpu, most, rate
from penstock.v1 import admin_pb2 as admin
from support.crowd import Crowd, pipelined

SECTION = "Durable and large"
BODY_BYTES = 100
MANY = "--publishers 100 --consumers 100 --queues 100 --in-flight 100"
ONE = "--publishers 1 --consumers 0 --queues 1 --in-flight 1 --batch 1"
LONG_SECONDS = 3_600.0
REST_SECONDS = 2.0
MAPPED_MB_MAX = 3 * 67.1
CROWD_COUNT = 10_000
CROWD_CONNECTIONS = 10


def durable(flags: str) -> Callable[[Load], dict[str, float]]:
    """Confirm once synced; `written` is bytes on the device per message."""

    def measure(load: Load) -> dict[str, float]:
        before = written_bytes(load.broker.data_dir, load.broker.pid)
        found = load.perf("throughput", "--size", str(BODY_BYTES), *flags.split(), "--durability", load.durability)
        written = written_bytes(load.broker.data_dir, load.broker.pid) - before
        return {
            "rate": found["confirmed_per_s"],
            "consumed": found["consumed_per_s"],
            "written": written / max(1, found["confirmed"]),
            "written_ratio": written / max(1, found["confirmed"] * BODY_BYTES),
            "broker_cpu_us": found["broker_cpu_us"],
        }

    return measure


def backlog(load: Load) -> dict[str, float]:
    """Fill one queue, kill the broker, start it, drain the queue."""
    broker, count = load.broker, load.backlog
    idle = anonymous_bytes(broker.pid)
    fill = ("--size", str(BODY_BYTES), "--consumers", "0", "--messages", str(count), "--durability", load.durability)
    figures: dict[str, float] = {}
    with most_file_bytes(broker.pid, figures, "mapped_filling"):
        load.perf("throughput", *fill, seconds=LONG_SECONDS)
        time.sleep(REST_SECONDS)
    figures |= {
        "anonymous": (anonymous_bytes(broker.pid) - idle) / 1e6,
        "stored": stored_bytes(broker.data_dir) / count,
    }
    broker.kill()
    started = time.perf_counter()
    broker.start()
    figures["start"] = time.perf_counter() - started
    with penstock.connect(load.uri) as connection:
        status = administration(connection).status()
    if status.ready_count != count:
        raise RuntimeError(f"{status.ready_count} messages are there after the kill, {count} were confirmed")
    figures |= {"recovery": status.recovery.ms, "bytes_read": status.recovery.bytes_read / 1e6}
    with most_file_bytes(broker.pid, figures, "mapped_draining"):
        drained = load.perf("throughput", "--publishers", "0", "--until-empty", seconds=LONG_SECONDS)
    return figures | {"drained": drained["consumed_per_s"], "broker_cpu_us": drained["broker_cpu_us"]}


def queues(load: Load) -> dict[str, float]:
    """Declare durable queues over one connection, list them, restart the broker."""
    broker, count = load.broker, load.queues
    idle = load.resident_bytes()
    wanted = (admin.Queue(name=f"queue-{number:06}", durable=True) for number in range(count))
    started = time.perf_counter()
    with load.counting_cpu(figures := {}, lambda: count):
        pipelined(broker.address, "DeclareQueue", (admin.DeclareQueueRequest(vhost="/", queue=one) for one in wanted))
    figures["declared"] = time.perf_counter() - started
    figures["resident"] = (load.resident_bytes() - idle) / 1e6
    figures["listed"] = seconds_to_list(load, count)
    broker.stop()
    started = time.perf_counter()
    broker.start()
    figures["start"] = time.perf_counter() - started
    return figures


def seconds_to_list(load: Load, count: int) -> float:
    with penstock.connect(load.uri) as connection:
        started = time.perf_counter()
        found = len(administration(connection).list_queues())
        if found != count:
            raise RuntimeError(f"{found} queues are listed, {count} were declared")
        return time.perf_counter() - started


def fan_out(load: Load) -> dict[str, float]:
    """Bind ten thousand queues to one exchange and publish messages that reach all of them."""
    names = [f"queue-{number:05}" for number in range(CROWD_COUNT)]
    declares = (admin.DeclareQueueRequest(vhost="/", queue=admin.Queue(name=name, durable=True)) for name in names)
    pipelined(load.broker.address, "DeclareQueue", declares)
    bindings = (admin.Binding(source="amq.fanout", destination=name) for name in names)
    started = time.perf_counter()
    pipelined(load.broker.address, "Bind", (admin.BindRequest(vhost="/", binding=one) for one in bindings))
    figures = {"bound": time.perf_counter() - started}
    with penstock.connect(load.uri, **load.confirms) as connection:
        connection.publish(bytes(BODY_BYTES), "amq.fanout")
        started, count = time.perf_counter(), 0
        with load.counting_cpu(figures, lambda: count):
            while not load.is_over(started):
                connection.publish(bytes(BODY_BYTES), "amq.fanout")
                count += CROWD_COUNT
        figures["rate"] = count / (time.perf_counter() - started)
        started = time.perf_counter()
        administration(connection).list_bindings("amq.fanout")
        figures["listed"] = time.perf_counter() - started
    return figures


def crowd(load: Load) -> dict[str, float]:
    return asyncio.run(_crowd(load))


async def _crowd(load: Load) -> dict[str, float]:
    """Let every consumer take one message a turn; most of a turn's cost is the Python client's, so CPU is measured."""
    figures: dict[str, float] = {}
    idle = load.resident_bytes()
    count = 0
    async with penstock.aio.connect(load.uri, **load.confirms) as connection:
        await connection.declare_queue("shared")
        async with Crowd(load.broker.address, "/", "shared", CROWD_COUNT, CROWD_CONNECTIONS) as members:
            started = time.perf_counter()
            with load.counting_cpu(figures, lambda: count):
                while not load.is_over(started):
                    await connection.publish_many([bytes(BODY_BYTES)] * CROWD_COUNT, routing_key="shared")
                    await asyncio.gather(*(member.receive() for member in members.members))
                    await asyncio.gather(*(member.acknowledge() for member in members.members))
                    count += CROWD_COUNT
            figures["rate"] = count / (time.perf_counter() - started)
            figures["resident"] = (load.resident_bytes() - idle) / 1e6
    return figures


CONFIRMED_AND_CONSUMED = (
    rate(400_000),
    Figure("consumed", "msg/s"),
    most("written_ratio", "bytes written per byte of body", 3),
    cpu(),
)

STORAGE_ROWS = (
    Row(
        "many-single",
        "100 B, 100 queues, 100 connections with 100 in flight, one message per stream message, consumed and acked",
        CONFIRMED_AND_CONSUMED,
        durable(f"{MANY} --batch 1"),
        "disk",
        SECTION,
    ),
    Row(
        "many-batched",
        "the same, as batched by the client",
        CONFIRMED_AND_CONSUMED,
        durable(f"{MANY} --batch 100"),
        "disk",
        SECTION,
    ),
    Row(
        "one-by-one",
        "100 B, 1 publisher, 1 in flight",
        (rate(5_000), most("written", "bytes written per message", 4_608), cpu()),
        durable(ONE),
        "disk",
        SECTION,
    ),
    Row(
        "backlog",
        "a backlog of 10 M messages of 100 B (or --backlog), a start after kill -9, drained by one consumer",
        (
            most("anonymous", "MB above idle", 60),
            most("mapped_filling", "MB of files in memory, at most, filling", MAPPED_MB_MAX),
            most("mapped_draining", "MB of files in memory, at most, draining", MAPPED_MB_MAX),
            most("stored", "bytes on disk per message", 160),
            most("start", "s to ready", 1),
            most("recovery", "ms of recovery"),
            most("bytes_read", "MB read", 134.3),
            Figure("drained", "msg/s", 2_000_000),
            cpu(),
        ),
        backlog,
        "os",
        SECTION,
    ),
    Row(
        "queues",
        "100,000 durable queues (or --queues), declared pipelined over one connection",
        (
            most("declared", "s", 30),
            most("resident", "MB above idle", 200),
            most("listed", "s to list all"),
            most("start", "s to ready", 3),
            most("broker_cpu_us", "us/declare"),
        ),
        queues,
        "disk",
        SECTION,
    ),
    Row(
        "fan-out",
        "10,000 queues bound to one exchange, messages that reach all of them",
        (
            most("bound", "s to bind"),
            Figure("rate", "copies/s"),
            most("listed", "s to list all"),
            most("broker_cpu_us", "us/copy"),
        ),
        fan_out,
        "disk",
        SECTION,
    ),
    Row(
        "crowd",
        "10,000 consumers of one queue on 10 connections, each a message a turn, Python load",
        (Figure("rate", "msg/s"), most("resident", "MB above idle"), cpu()),
        crowd,
        "os",
        SECTION,
    ),
)
