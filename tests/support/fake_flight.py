"""A broker's Flight service in memory, for the connector's tests, with the answers of docs/flight.md.

It has streams with partitions, ranges, times, numbers that were skipped, and producers that store nothing twice; the
real broker has its own tests.
"""

import json
import threading
from collections.abc import Iterator
from itertools import count
from time import monotonic
from typing import Any

import pyarrow as pa
from pyarrow import flight

from penstock.spark import described
from support.cluster_member import not_leader
from support.partitions import joined

__all__ = ["FakeFlight"]

TEXT = pa.string()
TIME = pa.timestamp("us", tz="UTC")
TEXT_PROPERTIES = (
    *("content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id", "type", "user_id"),
    "app_id",
)
PROPERTIES = pa.struct(
    [
        ("content_type", TEXT),
        ("content_encoding", TEXT),
        ("delivery_mode", pa.int32()),
        ("priority", pa.int32()),
        ("correlation_id", TEXT),
        ("reply_to", TEXT),
        ("expiration", TEXT),
        ("message_id", TEXT),
        ("timestamp", TIME),
        ("type", TEXT),
        ("user_id", TEXT),
        ("app_id", TEXT),
    ]
)
HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", TEXT, nullable=False), ("value", pa.binary())]), nullable=False)
)
SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", TIME, nullable=False),
        pa.field("key", pa.binary()),
        pa.field("exchange", TEXT, nullable=False),
        pa.field("routing_key", TEXT, nullable=False),
        pa.field("body", pa.binary(), nullable=False),
        pa.field("properties", PROPERTIES),
        pa.field("headers", HEADERS, nullable=False),
        pa.field("partition", TEXT, nullable=False),
    ]
)
FIRST_TIME_MS = 1_700_000_000_000
ROWS_MAX = 1_000


class FakeFlight(flight.FlightServerBase):  # type: ignore[misc]
    """Offsets begin at 1; the message with offset n was stored n - 1 milliseconds after FIRST_TIME_MS."""

    def __init__(self) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.streams: dict[str, list[str]] = {}
        # By partition and offset.
        self.rows: dict[str, dict[int, dict[str, Any]]] = {}
        self.first: dict[str, int] = {}
        self.next: dict[str, int] = {}
        # Messages that a partition was ever given, and its id.
        self.given: dict[str, int] = {}
        self.ids: dict[str, str] = {}
        self._ids = count(1)
        # By partition, why rows below its first one cannot be read; by stream, its declared number of partitions.
        self.archive_errors: dict[str, str] = {}
        self.declared: dict[str, int] = {}
        # Questions about streams, as they came.
        self.asked: list[dict[str, Any]] = []
        self.producers: dict[str, int] = {}
        # Rows of one DoPut after which it fails once, as a broker that dies does.
        self.break_put_after: int | None = None
        # Rows of one DoGet after which it fails once.
        self.break_get_after: int | None = None
        # Set: a DoGet answers nothing until it is cleared.
        self.is_silent = threading.Event()
        self.puts = 0
        # Those that the client ended, and rows that the final answer leaves out, or says to have reached no queue.
        self.puts_ended = 0
        self.unconfirmed = 0
        self.unroutable = 0
        # Where the broker is that leads instead of this one; empty when none is known.
        self.leader: str | None = None
        self.refused = 0
        self._lock = threading.Lock()

    @property
    def uri(self) -> str:
        return f"penstock://guest:guest@127.0.0.1:{self.port}/"

    def declare(self, stream: str, partitions: int = 1) -> None:
        names = [stream] if partitions == 1 else [f"{stream}-{number}" for number in range(partitions)]
        self.streams[stream] = names
        for name in names:
            self.rows[name] = {}
            self.first[name] = self.next[name] = 1
            self.given[name] = 0
            self.ids[name] = f"id-{next(self._ids)}"

    def delete(self, stream: str) -> None:
        del self.streams[stream]

    def publish(self, partition: str, *bodies: bytes, key: bytes | None = None, routing_key: str = "") -> None:
        for body in bodies:
            self._append(partition, {"body": body, "key": key, "routing_key": routing_key or partition})

    def lose(self, partition: str, *offsets: int) -> None:
        """Remove messages from the middle, as a segment that is gone does."""
        for offset in offsets:
            del self.rows[partition][offset]

    def retain(self, partition: str, first: int) -> None:
        """Remove the rows before `first`, as retention does."""
        self.first[partition] = first
        self.rows[partition] = {offset: row for offset, row in self.rows[partition].items() if offset >= first}

    def skip(self, partition: str, numbers: int = 2**32) -> None:
        """Skip offsets, as a start after a power failure does."""
        self.next[partition] += numbers

    def lose_tail(self, partition: str, rows: int) -> None:
        """Lose the newest rows and skip numbers, as a broker does whose rows were not synced."""
        for offset in sorted(self.rows[partition])[-rows:]:
            del self.rows[partition][offset]
        self.given[partition] -= rows
        self.skip(partition)

    def corrupt(self, partition: str, offset: int) -> None:
        """Make a row unreadable: it is dropped from reads, and counts as there."""
        self.rows[partition][offset] = {"corrupt": True, "body": b""}

    def bodies(self, stream: str) -> list[bytes]:
        return [row["body"] for name in self.streams[stream] for row in self.rows[name].values()]

    def _check_leader(self) -> None:
        if self.leader is not None:
            self.refused += 1
            raise flight.FlightUnavailableError("led by another broker", not_leader(self.leader))

    # ------------------------------------------------------------ called by Flight

    def do_action(self, context: Any, action: flight.Action) -> list[flight.Result]:
        self._check_leader()
        wanted = json.loads(action.body.to_pybytes())
        assert action.type == "DescribeStreams"
        assert wanted.keys() <= {"vhost", "streams", "at_timestamp_ms", "ends", "wait_ms"}
        self.asked.append(wanted)
        give_up = monotonic() + wanted.get("wait_ms", 0) / 1_000
        while monotonic() < give_up and not context.is_cancelled():
            if any(wanted["ends"].get(each["partition"]) != each["next"] for each in self._described(wanted)):
                break
            threading.Event().wait(0.005)
        return [flight.Result(json.dumps({"partitions": self._described(wanted)}).encode())]

    def _described(self, wanted: dict[str, Any]) -> list[dict[str, Any]]:
        found = []
        for stream in wanted["streams"]:
            # A partition may be named as a stream.
            names = self.streams.get(stream) or [
                name for names in self.streams.values() for name in names if name == stream
            ]
            if not names:
                raise pa.ArrowKeyError(f"stream '{stream}' in vhost '/' not found; declare it first or check the name")
            found += [self._described_partition(stream, name, wanted.get("at_timestamp_ms")) for name in names]
        for each in found:
            each["runs"] = joined(each["runs"], described.runs_max(len(found)))
        return found

    def _described_partition(self, stream: str, name: str, at_timestamp_ms: int | None) -> dict[str, Any]:
        offsets = sorted(self.rows[name])
        runs: list[list[int]] = []
        for offset in offsets:
            if runs and runs[-1][1] == offset:
                runs[-1][1] += 1
            else:
                runs.append([offset, offset + 1])
        found = {
            "stream": stream,
            "partition": name,
            "id": self.ids[name],
            "first": self.first[name],
            "next": self.next[name],
            "rows": self.given[name],
            "bytes": sum(len(row["body"]) for row in self.rows[name].values()),
            "runs": runs,
        }
        if name in self.archive_errors:
            found["archive_error"] = self.archive_errors[name]
        if stream in self.declared:
            found["partition_count"] = self.declared[stream]
        if at_timestamp_ms is not None:
            least = at_timestamp_ms - FIRST_TIME_MS + 1
            found["at_timestamp"] = next((offset for offset in offsets if offset >= least), self.next[name])
        return found

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[flight.FlightInfo]:
        for stream in self.streams:
            yield flight.FlightInfo(SCHEMA, flight.FlightDescriptor.for_path(stream), [], -1, -1)

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.GeneratorStream:
        self._check_leader()
        wanted = json.loads(ticket.ticket)
        name = wanted["partition"]
        offsets = [
            offset
            for offset, row in sorted(self.rows[name].items())
            if wanted["from"] <= offset < wanted["to"] and "corrupt" not in row
        ]
        names = wanted.get("columns") or SCHEMA.names
        schema = pa.schema([SCHEMA.field(name) for name in names])
        return flight.GeneratorStream(schema, self._batches(name, offsets, wanted, schema))

    def _batches(
        self, partition: str, offsets: list[int], wanted: dict[str, Any], schema: pa.Schema
    ) -> Iterator[tuple[pa.RecordBatch, bytes]]:
        """Yield batches with their reports: ROWS_MAX messages were looked at for each."""
        while self.is_silent.is_set():
            threading.Event().wait(0.01)
        for start in range(0, len(offsets), ROWS_MAX):
            if self.break_get_after is not None and start >= self.break_get_after:
                self.break_get_after = None
                raise flight.FlightUnavailableError("the broker died")
            seen = offsets[start : start + ROWS_MAX]
            rows = [self._row(partition, offset) for offset in seen]
            found = [{name: row[name] for name in schema.names} for row in rows if is_wanted(row, wanted)]
            report = {"next": seen[-1] + 1, "seen": len(seen)}
            yield pa.RecordBatch.from_pylist(found, schema), json.dumps(report).encode()

    def do_put(
        self, context: Any, descriptor: flight.FlightDescriptor, reader: Any, writer: flight.FlightMetadataWriter
    ) -> None:
        self._check_leader()
        command = json.loads(descriptor.command)
        self.puts += 1
        stream = command.get("stream")
        if stream is not None and stream not in self.streams:
            raise pa.ArrowKeyError(f"exchange '{stream}' in vhost '/' not found; declare it first or check the name")
        confirmed = 0
        for chunk in reader:
            for row in chunk.data.to_pylist():
                if self.break_put_after is not None and confirmed >= self.break_put_after:
                    self.break_put_after = None
                    raise flight.FlightUnavailableError("the broker died")
                confirmed += 1
                first = ((command["batch"] + 1) << 32) + 1 if "batch" in command else command.get("sequence", 0)
                self._publish_once(command, first + confirmed - 1, row)
            answer = {"confirmed": confirmed - self.unconfirmed, "unroutable": self.unroutable}
            writer.write(json.dumps(answer).encode())
        self.puts_ended += not context.is_cancelled()

    # ------------------------------------------------------------ internals

    def _publish_once(self, command: dict[str, Any], sequence: int, row: dict[str, Any]) -> None:
        producer = command.get("producer")
        with self._lock:
            if producer is not None:
                if sequence <= self.producers.get(producer, 0):
                    return
                self.producers[producer] = sequence
            names = self.streams[command.get("stream") or command["routing_key"]]
            key = row.get("key") or b""
            self._append(names[sum(key) % len(names)], row)

    def _append(self, partition: str, row: dict[str, Any]) -> None:
        body = row["body"]
        offset = self.next[partition]
        self.rows[partition][offset] = {**row, "body": body.encode() if isinstance(body, str) else body}
        self.next[partition] = offset + 1
        self.given[partition] += 1

    def _row(self, partition: str, offset: int) -> dict[str, Any]:
        row = self.rows[partition][offset]
        return {
            "offset": offset,
            "timestamp": (FIRST_TIME_MS + offset - 1) * 1_000,
            "exchange": "",
            "routing_key": row.get("routing_key") or partition,
            "partition": partition,
            "headers": row.get("headers") or [],
            "key": row.get("key"),
            "body": row["body"],
            "properties": row.get("properties"),
        }


def is_wanted(row: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Return whether a row meets the filters of a ticket."""
    header = wanted.get("header_is")
    return (
        ("key_is" not in wanted or row["key"] == wanted["key_is"].encode())
        and ("routing_key_is" not in wanted or row["routing_key"] == wanted["routing_key_is"])
        and (header is None or (header["name"], header["value"]) in row["headers"])
    )
