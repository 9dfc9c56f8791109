"""Decodes bodies into columns and moves bad records to the dead-letter stream.

A body that cannot be decoded never stops a read. With a dead-letter stream it is published there, with the reason in
its headers, once, even when its task is repeated. Without one its `value` is null, or holds nothing but the text of the
body where the schema has a column for it. This module knows Arrow, not Spark.
"""

import queue
import threading
from functools import partial
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.avro import avro_decoder
from penstock.spark.bodies import DecodeBodies, decoded_bodies
from penstock.spark.columns import PARSED
from penstock.spark.json_bodies import json_decoder
from penstock.spark.json_schema import corrupt_column_of, fields_of_bodies
from penstock.spark.options import Decoding
from penstock.spark.protobuf import protobuf_decoder
from penstock.spark.ranges import OffsetRange
from penstock.spark.wire import Wire

__all__ = ["Decoder"]

# Batches of bad records that wait for the dead-letter stream; beyond this the task waits for the broker.
DEAD_BATCHES_MAX = 4
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
DEAD_SCHEMA = pa.schema([("body", pa.binary()), ("key", pa.binary()), ("headers", HEADERS)])


class Decoder:
    """Decoder for the bodies of one range. Leave it as a context manager: bad records are stored only then."""

    def __init__(
        self, wire: Wire, decoding: Decoding, wanted: OffsetRange, origin: str, *, is_lease: bool = False
    ) -> None:
        self._decoding = decoding
        # Made for the schema of the first batch, which all others have too.
        self._decoded: DecodeBodies | None = None
        self._dead = DeadLetters(wire, decoding.dead_letter_stream, wanted, origin, is_lease=is_lease)

    def decode(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return the batch with the decoded column, without the bad rows when they go to a dead-letter stream."""
        if self._decoding.format == "none" or batch.num_rows == 0 or PARSED not in schema.names:
            return batch
        if self._decoded is None:
            self._decoded = bodies_decoder(self._decoding, schema.field(PARSED).type)
        values, reasons = self._decoded(batch["body"])
        if reasons and (self._decoding.drops or self._decoding.dead_letter_stream):
            if self._decoding.dead_letter_stream:
                bad = pa.array(sorted(reasons), pa.int64())
                self._dead.put(batch.take(bad), [reasons[row] for row in sorted(reasons)])
            good = pa.array([row for row in range(batch.num_rows) if row not in reasons], pa.int64())
            batch, values = batch.take(good), values.take(good)
        return batch.append_column(PARSED, values)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._dead.close()


def bodies_decoder(decoding: Decoding, kind: pa.StructType) -> DecodeBodies:
    """Return a function that returns a struct for each body, and the reason by row where it could not."""
    if decoding.format == "avro":
        of_avro = partial(decoded_bodies, kind=kind, decode=avro_decoder(decoding.schema))
        return partial(without_tombstones, kind=kind, decode=of_avro)
    if decoding.format == "protobuf":
        # An empty body is a message.
        return partial(decoded_bodies, kind=kind, decode=protobuf_decoder(decoding.descriptors, decoding.message))
    decode = json_decoder(fields_of_bodies(kind, decoding))
    corrupt = corrupt_column_of(kind, decoding)
    return decode if corrupt is None else partial(with_corrupt, kind=kind, corrupt=corrupt, decode=decode)


def without_tombstones(bodies: pa.Array, kind: pa.StructType, decode: DecodeBodies) -> tuple[pa.Array, dict[int, str]]:
    """Decode all bodies but empty ones. They are tombstones, which are null and no bad records."""
    rows = pc.indices_nonzero(pc.binary_length(bodies))
    if len(rows) == len(bodies):
        return decode(bodies)
    if len(rows) == 0:
        return pa.nulls(len(bodies), kind), {}
    values, reasons = decode(bodies.take(rows))
    places = pc.index_in(pa.array(range(len(bodies)), pa.uint64()), value_set=rows)
    return values.take(places), {rows[row].as_py(): reason for row, reason in reasons.items()}


def with_corrupt(
    bodies: pa.Array, kind: pa.StructType, corrupt: str, decode: DecodeBodies
) -> tuple[pa.Array, dict[int, str]]:
    """Decode bodies to structs with the text of bad ones in a column; bytes that are no text are replaced."""
    values, reasons = decode(bodies)
    texts: list[str | None] = [None] * len(bodies)
    for row in reasons:
        texts[row] = bodies[row].as_py().decode(errors="replace")
    columns = {field.name: values.field(field.name) for field in values.type}
    columns[corrupt] = pa.array(texts, pa.string())
    # A bad row is no null but a struct, or its text would not be seen.
    is_null = pc.and_(values.is_null(), pc.is_null(columns[corrupt]))
    arrays = [columns[field.name] for field in kind]
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=is_null), reasons


class DeadLetters:
    """Publisher of bad records as they are found, through one call for the whole range.

    The i-th bad record of a range has the producer sequence o + 1 + i, where o is the offset of the first one. That is
    never above its own offset + 1. A range that is read again repeats its sequences, and the next range of the same
    origin starts above them. Where retention removed the first records meanwhile, the others get sequences that are
    higher by at least their number: some may be stored twice, and none is taken for another one. The records of a
    lease are counted from the start of its range, because their offsets may be below those of an earlier lease.
    """

    def __init__(self, wire: Wire, stream: str, wanted: OffsetRange, origin: str, *, is_lease: bool = False) -> None:
        self._wire = wire
        self._wanted = wanted
        self._first = wanted.start + 1 if is_lease else None
        self._command: dict[str, Any] = {"stream": stream, "producer": f"dead-letters/{origin}"}
        self._waiting: queue.Queue[pa.RecordBatch | None] = queue.Queue(DEAD_BATCHES_MAX)
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def put(self, rows: pa.RecordBatch, reasons: list[str]) -> None:
        if self._thread is None:
            self._command["sequence"] = rows["offset"][0].as_py() + 1 if self._first is None else self._first
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
        except Exception as error:  # noqa: BLE001 - close raises it: letters that were not published must not be forgotten
            self._error = error
        # Consume the remaining rows, so that they do not wait for a put that has ended. An exhausted iterator stays
        # exhausted.
        for _ in rows:
            pass
