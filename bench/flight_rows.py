"""Rows about Arrow Flight: a stream read with pyarrow, some columns or all, and rows published.

Broker and reader share the processors, as in every row.
"""

import json
import time

import pyarrow as pa
from pyarrow import flight

import penstock
from bench.measure import Load
from bench.rows import Row, cpu, rate
from bench.stream_rows import BODY_BYTES, SECTION, STREAM, filled
from penstock.client.uri import parse_uri

PUT_ROWS = 2_000_000
PUT_BATCH_ROWS = 16_384


def read_some(load: Load) -> dict[str, float]:
    return _read(load, ["offset", "timestamp", "body"])


def read_all(load: Load) -> dict[str, float]:
    return _read(load, None)


def _read(load: Load, columns: list[str] | None) -> dict[str, float]:
    """Read batches, each complete in memory before the next is requested."""
    total = filled(load)
    client, options = _connected(load)
    ticket = flight.Ticket(json.dumps({"partition": STREAM, "columns": columns}))
    figures: dict[str, float] = {}
    count = 0
    with client:
        started = time.perf_counter()
        with load.counting_cpu(figures, lambda: count):
            for chunk in client.do_get(ticket, options):
                count += chunk.data.num_rows
        figures["rate"] = count / (time.perf_counter() - started)
    if count != total:
        raise RuntimeError(f"{count} rows were read, {total} were published")
    return figures


def put(load: Load) -> dict[str, float]:
    """Publish one table in batches, until all of it is confirmed."""
    with penstock.connect(load.uri) as connection:
        connection.declare_stream(STREAM)
    client, options = _connected(load)
    table = pa.table({"body": pa.array([bytes(BODY_BYTES)] * PUT_ROWS, pa.binary())})
    descriptor = flight.FlightDescriptor.for_command(json.dumps({"stream": STREAM, **load.confirms}))
    figures: dict[str, float] = {}
    confirmed = 0
    with client:
        started = time.perf_counter()
        with load.counting_cpu(figures, lambda: confirmed):
            writer, results = client.do_put(descriptor, table.schema, options)
            with writer:
                writer.write_table(table, PUT_BATCH_ROWS)
                writer.done_writing()
                while (result := results.read()) is not None:
                    confirmed = json.loads(result.to_pybytes())["confirmed"]
        figures["rate"] = confirmed / (time.perf_counter() - started)
    if confirmed != PUT_ROWS:
        raise RuntimeError(f"{confirmed} rows were confirmed, {PUT_ROWS} were sent")
    return figures


def _connected(load: Load) -> tuple[flight.FlightClient, flight.FlightCallOptions]:
    address = parse_uri(load.uri)
    options = flight.FlightCallOptions(headers=[(b"authorization", address.authorization.encode())])
    return flight.FlightClient(f"grpc://{address.target}"), options


FLIGHT_ROWS = (
    Row(
        "flight-read",
        "Flight into pyarrow, 100 B: offset, timestamp, body",
        (rate(5_000_000), cpu()),
        read_some,
        "os",
        SECTION,
    ),
    Row(
        "flight-read-all",
        "the same with all columns",
        (rate(2_000_000), cpu()),
        read_all,
        "os",
        SECTION,
    ),
    Row(
        "flight-put",
        "rows of 100 B published over Flight, 16,384 a batch",
        (rate(None), cpu()),
        put,
        "os",
        SECTION,
    ),
)
