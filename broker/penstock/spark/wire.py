"""The connector's client of the broker, over Arrow Flight only.

A range is requested by the partition's name and offsets, so the rows of a task do not depend on when it reads.
Connections are made where they are used, in the driver and in each task: Spark's workers are forks, and gRPC does not
survive a fork.
"""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import flight

from penstock.client.uri import parse_uri
from penstock.spark.errors import DataLossError
from penstock.spark.ranges import OffsetRange, Offsets

__all__ = ["Described", "Wire"]

T = TypeVar("T")

# A restarting broker was back within this time on all machines tried.
UNAVAILABLE_SECONDS_MAX = 30.0
UNAVAILABLE_PAUSE_SECONDS = 0.25
# A batch may have 64 MiB, but the broker holds it whole in memory.
PUT_BYTES_MAX = 8 * 2**20


@dataclass(frozen=True, slots=True)
class Described:
    """A stream at a moment: the start and end of each partition, and totals; -1 where unknown."""

    first: Offsets
    end: Offsets
    rows: int
    bytes: int
    # Ranges that retention removed before they were archived: the first offset and the one after the last.
    gone: dict[str, tuple[int, int]] = field(default_factory=dict)


class Wire:
    """A connection; use it as a context manager."""

    def __init__(self, uri: str) -> None:
        address = parse_uri(uri)
        self.vhost = address.vhost
        secrets: dict[str, Any] = {}
        if address.tls is not None:
            authorities, certificate, key, server_name = address.tls.texts()
            named = {
                "tls_root_certs": authorities,
                "cert_chain": certificate,
                "private_key": key,
                "override_hostname": server_name,
            }
            secrets = {name: value for name, value in named.items() if value}
        scheme = "grpc" if address.tls is None else "grpc+tls"
        self._client = flight.FlightClient(f"{scheme}://{address.target}", **secrets)
        self._options = flight.FlightCallOptions(headers=[(b"authorization", address.authorization.encode())])

    def describe(self, stream: str) -> Described:
        """Return the stream's state. Raises Flight's errors: KeyError when the stream does not exist."""
        info = self._info({"stream": stream})
        ranges = ranges_of(info)
        return Described(
            {partition: parts[0][0] for partition, parts in ranges.items()},
            {partition: parts[-1][1] for partition, parts in ranges.items()},
            info.total_records,
            info.total_bytes,
            {partition: (parts[0][1], parts[1][0]) for partition, parts in ranges.items() if len(parts) > 1},
        )

    def offsets_at(self, stream: str, timestamp_ms: int) -> Offsets:
        """Return the first offset stored at this time or later, or the end of a partition that has none."""
        info = self._info({"stream": stream, "from_timestamp_ms": timestamp_ms})
        return {partition: parts[0][0] for partition, parts in ranges_of(info).items()}

    def read(self, wanted: OffsetRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read a range.

        `columns` must have the offset: after a lost connection the read goes on behind the last one.
        """
        start, give_up = wanted.start, monotonic() + UNAVAILABLE_SECONDS_MAX
        while True:
            try:
                for chunk in self._get(wanted.partition, start, wanted.end, columns):
                    batch = chunk.data
                    if batch.num_rows:
                        start, give_up = batch["offset"][-1].as_py() + 1, monotonic() + UNAVAILABLE_SECONDS_MAX
                    yield batch
                return
            except flight.FlightUnavailableError:
                if monotonic() >= give_up:
                    raise
                sleep(UNAVAILABLE_PAUSE_SECONDS)

    def read_lease(self, wanted: dict[str, Any], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read a part of a lease, whose offsets ascend and may have gaps.

        `columns` must have the offset, as for `read`. Raises DataLossError when the lease does not exist.
        """
        ticket = json.dumps({"vhost": self.vhost, **wanted, "columns": list(columns)})
        last, give_up = -1, monotonic() + UNAVAILABLE_SECONDS_MAX
        while True:
            try:
                for chunk in self._client.do_get(flight.Ticket(ticket), self._options):
                    batch = chunk.data.filter(pc.greater(chunk.data["offset"], last))
                    if batch.num_rows:
                        last, give_up = batch["offset"][-1].as_py(), monotonic() + UNAVAILABLE_SECONDS_MAX
                        yield batch
                return
            except flight.FlightUnavailableError:
                if monotonic() >= give_up:
                    raise
                sleep(UNAVAILABLE_PAUSE_SECONDS)
            except KeyError as error:
                raise DataLossError(
                    f"{error}; another query uses that owner's name, or the lease was released manually"
                ) from error

    def put(self, command: dict[str, Any], schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> dict[str, int]:
        """Publish a message per row; return the broker's final answer, which counts all rows."""
        descriptor = flight.FlightDescriptor.for_command(json.dumps({"vhost": self.vhost, **command}))
        writer, results = retried(lambda: self._client.do_put(descriptor, schema, self._options))
        answers = Answers(results)
        with writer:
            for batch in batches:
                for part in parts_of(batch):
                    writer.write_batch(part)
            writer.done_writing()
            return answers.last()

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _get(self, partition: str, start: int, end: int, columns: Sequence[str]) -> Iterator[Any]:
        ticket = {"vhost": self.vhost, "partition": partition, "from": start, "to": end, "columns": list(columns)}
        yield from self._client.do_get(flight.Ticket(json.dumps(ticket)), self._options)

    def _info(self, command: dict[str, Any]) -> flight.FlightInfo:
        descriptor = flight.FlightDescriptor.for_command(json.dumps({"vhost": self.vhost, **command}))
        return retried(lambda: self._client.get_flight_info(descriptor, self._options))


class Answers:
    """Reader of results on its own thread: unread results would stop the broker from reading rows."""

    def __init__(self, results: Any) -> None:
        self._results = results
        self._last: dict[str, int] = {}
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def last(self) -> dict[str, int]:
        """Return the broker's final answer; raise what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._last

    def _take(self) -> None:
        try:
            while (result := self._results.read()) is not None:
                self._last = json.loads(result.to_pybytes())
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            self._error = error


def ranges_of(info: flight.FlightInfo) -> dict[str, list[tuple[int, int]]]:
    """Return the ranges of each partition in order: two where rows between archive and log are missing."""
    found: dict[str, list[tuple[int, int]]] = {}
    for endpoint in info.endpoints:
        ticket = json.loads(endpoint.ticket.ticket)
        found.setdefault(ticket["partition"], []).append((ticket["from"], ticket["to"]))
    return {partition: sorted(parts) for partition, parts in found.items()}


def parts_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the batch in pieces of about PUT_BYTES_MAX."""
    rows = max(1, batch.num_rows * PUT_BYTES_MAX // max(batch.nbytes, 1))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def retried(call: Callable[[], T]) -> T:
    """Retry for a while when the broker cannot be reached. Use it only for calls that store nothing."""
    give_up = monotonic() + UNAVAILABLE_SECONDS_MAX
    while True:
        try:
            return call()
        except flight.FlightUnavailableError:
            if monotonic() >= give_up:
                raise
            sleep(UNAVAILABLE_PAUSE_SECONDS)
