"""The rows about streams: appending and reading over gRPC, and finding a time in a large stream. `--backlog` makes the
large one smaller: it has a thousand bytes for each of its messages."""

import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from statistics import median
from typing import Any

import grpc

import penstock
from bench.measure import Load
from bench.rows import Figure, Row, cpu, most, rate
from penstock.client.uri import parse_uri
from penstock.v1 import streams_pb2

SECTION = "Streams"
STREAM = "perf-1"
BODY_BYTES = 100
LARGE_BODY_BYTES = 10_000
CHUNK = 1_000
LOOKUPS = 200
READ = "/penstock.v1.StreamService/Read"


def append(load: Load) -> dict[str, float]:
    """As the row of a queue: one publisher, batches of 100, 1,000 unconfirmed."""
    flags = f"--size {BODY_BYTES} --batch 100 --publishers 1 --consumers 0 --in-flight 1000 --stream"
    found = load.perf("throughput", *flags.split(), "--level", load.level)
    return {"rate": found["confirmed_per_s"], "broker_cpu_us": found["broker_cpu_us"]}


def read(load: Load) -> dict[str, float]:
    """Responses as they come, parsed by protobuf, no Python object a message: what the broker can send."""
    total = filled(load)
    address = parse_uri(load.uri)
    figures: dict[str, float] = {}
    count = 0
    with grpc.insecure_channel(address.target, options=[("grpc.max_receive_message_length", -1)]) as channel:
        open_stream: Callable[..., Any] = channel.stream_stream(READ)
        opening = streams_pb2.ReadOpen(partition=STREAM, start=streams_pb2.Start(place=streams_pb2.PLACE_FIRST))
        request = streams_pb2.ReadRequest(open=opening).SerializeToString()
        started = time.perf_counter()
        with load.counting_cpu(figures, lambda: count):
            call = open_stream(iter([request]), metadata=(("authorization", address.authorization),))
            for payload in call:
                count += len(streams_pb2.ReadResponse.FromString(payload).deliveries.deliveries)
                if count >= total:
                    break
        figures["rate"] = count / (time.perf_counter() - started)
        call.cancel()
    return figures


def read_messages(load: Load) -> dict[str, float]:
    """The Python client's messages, each looked at."""
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
    """Offsets for times drawn from all of a large stream, each a call."""
    body = bytes(LARGE_BODY_BYTES)
    count = load.backlog * 1_000 // LARGE_BODY_BYTES
    with penstock.connect(load.uri, level=load.level) as connection:
        connection.declare_stream(STREAM)
        stream = connection.stream(STREAM)
        for _ in range(max(1, count // CHUNK)):
            stream.publish_many([body] * CHUNK)
        (status,) = stream.offsets()
        draw = random.Random(1)
        times = [draw.randint(status.first_timestamp_ms, status.last_timestamp_ms) for _ in range(LOOKUPS)]
        found = sorted(_milliseconds(stream, at) for at in times)
    return {
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
    """A stream of as many messages as a reading of some seconds needs."""
    total = int(load.seconds * 1_000_000)
    flags = f"--size {BODY_BYTES} --consumers 0 --messages {total} --stream --level os"
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
        "stream-read",
        "read a stream, 100 B, over grpcio, responses parsed",
        (rate(3_000_000), cpu()),
        read,
        "os",
        SECTION,
    ),
    Row(
        "stream-read-python",
        "the same into messages of the Python client",
        (rate(None), cpu()),
        read_messages,
        "os",
        SECTION,
    ),
    Row(
        "stream-time",
        "the offset for a time in a stream of 10 GB (or a thousand bytes a message of --backlog), a call each",
        (Figure("stored", "GB"), most("median", "ms", 5), most("p99", "ms")),
        find_time,
        "os",
        SECTION,
    ),
)
