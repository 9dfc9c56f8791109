"""Rows about streams: appending, reading over gRPC and within one process, and finding a time in a large stream.

`--backlog` makes the large one smaller: it has a thousand bytes for each of its messages.
"""

import random
import re
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import penstock
from bench.measure import Load
from bench.rows import Figure, Row, cpu, most, rate

SECTION = "Streams"
STREAM = "perf-1"
BODY_BYTES = 100
LARGE_BODY_BYTES = 10_000
CHUNK = 1_000
LOOKUPS = 200
ROOT = Path(__file__).parent.parent


def append(load: Load) -> dict[str, float]:
    """Append as the row of a queue: one publisher, batches of 100, 1,000 unconfirmed."""
    flags = f"--size {BODY_BYTES} --batch 100 --publishers 1 --consumers 0 --in-flight 1000 --stream"
    found = load.perf("throughput", *flags.split(), "--durability", load.durability)
    return {"rate": found["confirmed_per_s"], "broker_cpu_us": found["broker_cpu_us"]}


def append_and_read(load: Load) -> dict[str, float]:
    """Append beside a reader that gets each message as it comes; return the slower of both."""
    flags = f"--size {BODY_BYTES} --batch 100 --publishers 1 --consumers 1 --in-flight 1000 --stream"
    found = load.perf("throughput", *flags.split(), "--durability", load.durability)
    return {"rate": min(found["confirmed_per_s"], found["consumed_per_s"]), "broker_cpu_us": found["broker_cpu_us"]}


def read(load: Load) -> dict[str, float]:
    """Read with the load generator from the first message to the last: the broker's send rate."""
    total = filled(load)
    flags = f"--publishers 0 --consumers 1 --messages {total} --stream"
    found = load.perf("throughput", *flags.split(), seconds=600)
    if found["consumed"] != total:
        raise RuntimeError(f"{found['consumed']} messages were read, {total} were published")
    return {"rate": found["consumed_per_s"], "broker_cpu_us": found["broker_cpu_us"]}


def read_in_process(load: Load) -> dict[str, float]:
    """Run the engine's own example, without a broker and a network: medians of its rounds, of one thread."""
    del load
    command = "cargo run --release --locked --quiet -p penstock-engine --example stream_read_speed"
    done = subprocess.run(command.split(), cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=1_800)
    rounds = re.findall(r"^read .*: ([0-9.]+) M messages/s, ([0-9.]+) us of processor each$", done.stdout, re.MULTILINE)
    rates, seconds = zip(*rounds, strict=True)
    return {"rate": median(map(float, rates)) * 1e6, "broker_cpu_us": median(map(float, seconds))}


def read_messages(load: Load) -> dict[str, float]:
    """Read with the Python client, accessing each message."""
    total = filled(load)
    figures: dict[str, float] = {}
    count = 0
    with penstock.connect(load.uri) as connection:
        started = time.perf_counter()
        with load.counting_cpu(figures, lambda: count):
            for message in connection.stream(STREAM).read("first", count=total):
                count += len(message.body) == BODY_BYTES
        figures["rate"] = count / (time.perf_counter() - started)
    if count != total:
        raise RuntimeError(f"{count} messages were read, {total} were published")
    return figures


def find_time(load: Load) -> dict[str, float]:
    """Find offsets for times drawn from all of a large stream, one per call."""
    body = bytes(LARGE_BODY_BYTES)
    count = load.backlog * 1_000 // LARGE_BODY_BYTES
    with penstock.connect(load.uri, **load.confirms) as connection:
        connection.declare_stream(STREAM)
        stream = connection.stream(STREAM)
        for _ in range(max(1, count // CHUNK)):
            stream.publish_many([body] * CHUNK)
        (status,) = stream.offsets()
        draw = random.Random(1)
        times = [draw.randint(status.first_timestamp_ms, status.last_timestamp_ms) for _ in range(LOOKUPS)]
        figures: dict[str, float] = {}
        with load.counting_cpu(figures, lambda: LOOKUPS):
            found = sorted(_milliseconds(stream, at) for at in times)
    return {
        **figures,
        "stored": status.bytes / 1e9,
        "median": median(found),
        "p99": found[int(len(found) * 0.99)],
    }


def _milliseconds(stream: penstock.Stream, at_ms: int) -> float:
    at = datetime.fromtimestamp(at_ms / 1_000, UTC)
    started = time.perf_counter()
    stream.offsets(at)
    return (time.perf_counter() - started) * 1_000


def filled(load: Load) -> int:
    """Return a stream with enough messages for a read of some seconds."""
    total = int(load.seconds * 1_000_000)
    flags = f"--size {BODY_BYTES} --consumers 0 --messages {total} --stream --durability os"
    load.perf("throughput", *flags.split(), seconds=600)
    with penstock.connect(load.uri) as connection:
        return connection.stream(STREAM).info().message_count


STREAM_ROWS = (
    Row(
        "stream-append",
        "append to a stream, 100 B, 1 publisher, batches of 100, 1,000 unconfirmed",
        (rate(3_000_000), cpu()),
        append,
        "os",
        SECTION,
    ),
    Row(
        "stream-append-read",
        "the same beside a reader that is up to date",
        (rate(None), cpu()),
        append_and_read,
        "os",
        SECTION,
    ),
    Row(
        "stream-read",
        "read a stream from its first message on, 100 B, one reader",
        (rate(3_000_000), cpu()),
        read,
        "os",
        SECTION,
    ),
    Row(
        "stream-read-process",
        "the same within one process, from the page cache",
        (rate(10_000_000), cpu()),
        read_in_process,
        "os",
        SECTION,
    ),
    Row(
        "stream-read-python",
        "the same over gRPC into messages of the Python client",
        (rate(None), cpu()),
        read_messages,
        "os",
        SECTION,
    ),
    Row(
        "stream-time",
        "the offset for a time in a stream of 10 GB (or a thousand bytes a message of --backlog), a call each",
        (Figure("stored", "GB"), most("median", "ms", 5), most("p99", "ms"), most("broker_cpu_us", "us/call")),
        find_time,
        "os",
        SECTION,
    ),
)
