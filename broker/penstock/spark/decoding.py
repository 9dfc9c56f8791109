"""Decodes bodies into columns and moves bad records to the dead-letter stream.

A body that cannot be decoded never stops a read. With a dead-letter stream it is published there, with the reason in
its headers, once, even when its task is repeated. Without one its `value` is null. This module knows Arrow, not Spark.
"""

import queue
import threading
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from penstock.spark.avro import avro_decoder
from penstock.spark.bodies import REASON_LENGTH_MAX, decoded_bodies
from penstock.spark.columns import PARSED
from penstock.spark.errors import SparkConnectorError
from penstock.spark.options import Decoding
from penstock.spark.protobuf import protobuf_decoder
from penstock.spark.ranges import OffsetRange
from penstock.spark.wire import Wire

__all__ = ["Decoder", "decoded_json"]

# Batches of bad records that wait for the dead-letter stream; beyond this the task waits for the broker.
DEAD_BATCHES_MAX = 4
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
DEAD_SCHEMA = pa.schema([("body", pa.binary()), ("key", pa.binary()), ("headers", HEADERS)])


class Decoder:
    """Decoder for the bodies of one range. Leave it as a context manager: bad records are stored only then."""

    def __init__(self, wire: Wire, decoding: Decoding, wanted: OffsetRange, origin: str) -> None:
        self._decoding = decoding
        self._decoded = bodies_decoder(decoding)
        self._dead = DeadLetters(wire, decoding.dead_letter_stream, wanted, origin)

    def decode(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return the batch with the decoded column, without the bad rows when they go to a dead-letter stream."""
        if self._decoding.format == "none" or batch.num_rows == 0 or PARSED not in schema.names:
            return batch
        values, reasons = self._values(batch["body"], schema.field(PARSED).type)
        if reasons and (self._decoding.drops or self._decoding.dead_letter_stream):
            if self._decoding.dead_letter_stream:
                bad = pa.array(sorted(reasons), pa.int64())
                self._dead.put(batch.take(bad), [reasons[row] for row in sorted(reasons)])
            good = pa.array([row for row in range(batch.num_rows) if row not in reasons], pa.int64())
            batch, values = batch.take(good), values.take(good)
        return batch.append_column(PARSED, values)

    def _values(self, bodies: pa.Array, kind: pa.StructType) -> tuple[pa.Array, dict[int, str]]:
        """Return a struct for each body, and the reason by row where there is a null instead.

        An empty body is a tombstone, which is null and no bad record. In Protobuf it is a message.
        """
        if self._decoding.format == "protobuf":
            return self._decoded(bodies, kind)
        rows = pc.indices_nonzero(pc.binary_length(bodies))
        if len(rows) == len(bodies):
            return self._decoded(bodies, kind)
        if len(rows) == 0:
            return pa.nulls(len(bodies), kind), {}
        values, reasons = self._decoded(bodies.take(rows), kind)
        places = pc.index_in(pa.array(range(len(bodies)), pa.uint64()), value_set=rows)
        return values.take(places), {rows[row].as_py(): reason for row, reason in reasons.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._dead.close()


def bodies_decoder(decoding: Decoding) -> Callable[[pa.Array, pa.StructType], tuple[pa.Array, dict[int, str]]]:
    """Return a function that returns a struct for each body, and the reason by row where it could not."""
    if decoding.format == "avro":
        return partial(decoded_bodies, decode=avro_decoder(decoding.schema))
    if decoding.format == "protobuf":
        return partial(decoded_bodies, decode=protobuf_decoder(decoding.descriptors, decoding.message))
    return decoded_json


class DeadLetters:
    """Publisher of bad records as they are found, through one call for the whole range.

    The i-th bad record of a range has the producer sequence start + 1 + i, which is never above its offset + 1. A range
    that is read again repeats its sequences, and the next range of the same origin starts above them.
    """

    def __init__(self, wire: Wire, stream: str, wanted: OffsetRange, origin: str) -> None:
        self._wire = wire
        self._wanted = wanted
        self._command = {
            "stream": stream,
            "producer": f"dead-letters/{origin}",
            "sequence": wanted.start + 1,
        }
        self._waiting: queue.Queue[pa.RecordBatch | None] = queue.Queue(DEAD_BATCHES_MAX)
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def put(self, rows: pa.RecordBatch, reasons: list[str]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._publish, daemon=True)
            self._thread.start()
        headers = [
            [
                {"key": "reason", "value": reason.encode()},
                {"key": "partition", "value": self._wanted.partition.encode()},
                {"key": "offset", "value": b"%d" % offset},
            ]
            for reason, offset in zip(reasons, rows["offset"].to_pylist(), strict=True)
        ]
        columns = [rows["body"], rows["key"], pa.array(headers, HEADERS)]
        self._waiting.put(pa.RecordBatch.from_arrays(columns, schema=DEAD_SCHEMA))

    def close(self) -> None:
        """Wait until the broker has confirmed all records; raise what it raised."""
        if self._thread is None:
            return
        self._waiting.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _publish(self) -> None:
        rows = iter(self._waiting.get, None)
        try:
            self._wire.put(self._command, DEAD_SCHEMA, rows)
        except SparkConnectorError as error:
            self._error = error
        # Consume the remaining rows, so that they do not wait for a put that has ended. An exhausted iterator stays
        # exhausted.
        for _ in rows:
            pass


def decoded_json(bodies: pa.Array, kind: pa.StructType) -> tuple[pa.Array, dict[int, str]]:
    """Return a struct for each body, and the reason by row where there is a null instead."""
    # A raw line break is only white space in JSON, but the parser reads one record per line.
    lines = pc.replace_substring_regex(bodies, rb"[\r\n]", b" ")
    is_object = pc.match_substring_regex(lines, rb"^\s*\{.*\}\s*$")
    reasons: dict[int, str] = {}
    pieces: list[pa.Array] = []
    for start, length, piece in parsed_pieces(lines, is_object.to_pylist(), kind):
        if isinstance(piece, str):
            reasons |= dict.fromkeys(range(start, start + length), piece)
            pieces.append(pa.nulls(length, kind))
        else:
            pieces.append(piece)
    return pa.concat_arrays(pieces), reasons


def parsed_pieces(
    lines: pa.Array, is_object: list[bool], kind: pa.StructType
) -> Iterator[tuple[int, int, pa.Array | str]]:
    """Yield runs of rows in order, with their values or with the reason for having none.

    All rows are tried together. A run that fails is halved until the row that fails alone is found.
    """
    waiting = [(0, len(lines))]
    while waiting:
        start, length = waiting.pop()
        rows = lines.slice(start, length)
        are_objects = all(is_object[start : start + length])
        found: pa.Array | str = parsed_lines(rows, kind) if are_objects else "the body is not a JSON object"
        if isinstance(found, str) and length > 1:
            half = length // 2
            waiting += [(start + half, length - half), (start, half)]
        else:
            yield start, length, found


def parsed_lines(rows: pa.Array, kind: pa.StructType) -> pa.Array | str:
    text = b"\n".join(rows.to_pylist())
    options = pyarrow.json.ParseOptions(explicit_schema=pa.schema(list(kind)), unexpected_field_behavior="ignore")
    read = pyarrow.json.ReadOptions(block_size=len(text) + 16, use_threads=False)
    try:
        table = pyarrow.json.read_json(BytesIO(text), read_options=read, parse_options=options)
    except pa.ArrowInvalid as error:
        return str(error)[:REASON_LENGTH_MAX]
    if table.num_rows != len(rows):
        return f"the body holds {table.num_rows} JSON values, not one"
    return pa.StructArray.from_arrays([table[field.name].combine_chunks() for field in kind], fields=list(kind))
