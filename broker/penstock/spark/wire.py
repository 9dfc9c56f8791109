"""The connector's client of the broker, over Arrow Flight only.

A range is requested by the partition's name and offsets, so the rows of a task do not depend on when it reads. Tasks
of one process share its connections.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import flight

from penstock.spark.answers import of_known_form
from penstock.spark.brokers import Addresses
from penstock.spark.calls import FAILURES, INFO_SECONDS_MAX, READ_SECONDS_MAX, RetryWindow, called
from penstock.spark.described import Partition, parse_partitions
from penstock.spark.errors import DataLossError, NotFoundError, UnavailableError
from penstock.spark.options import RETRY_SECONDS
from penstock.spark.pieces import Piece, piece_of
from penstock.spark.puts import PutCall, pieces_of
from penstock.spark.ranges import OffsetRange

__all__ = ["Wire"]

DESCRIBE = "DescribeStreams"
# A row's only required column.
NO_ROWS = pa.schema([("body", pa.binary())])
# About a quarter of a MiB.
ENDED_AT_ONCE = 4_096


class Wire:
    """A connection; use it as a context manager. All its errors are the connector's own."""

    def __init__(self, uri: str, retry_seconds: float = RETRY_SECONDS) -> None:
        self._addresses = Addresses(uri)
        self.vhost = self._addresses.vhost
        self._retry_seconds = retry_seconds

    def describe(
        self,
        streams: tuple[str, ...],
        at_timestamp_ms: int | None = None,
        ends: Mapping[str, int] | None = None,
        wait_ms: int = 0,
    ) -> dict[str, Partition]:
        """Return the partitions of streams by name. Raises NotFoundError when a stream does not exist.

        With `wait_ms` the broker answers when a partition has another end than in `ends`, or when the time is over.
        With a time, each partition has the first offset that was stored then or later.
        """
        wanted: dict[str, Any] = {"vhost": self.vhost, "streams": list(streams)}
        if at_timestamp_ms is not None:
            wanted["at_timestamp_ms"] = at_timestamp_ms
        if wait_ms:
            wanted |= {"ends": dict(ends or {}), "wait_ms": wait_ms}
        action = flight.Action(DESCRIBE, json.dumps(wanted).encode())
        seconds = INFO_SECONDS_MAX + wait_ms / 1_000

        def call() -> list[bytes]:
            answers = self._addresses.client.do_action(action, self._options(seconds))
            return [answer.body.to_pybytes() for answer in answers]

        contents = RetryWindow(self._retry_seconds, self._addresses).run(call)
        # Not in the call: an answer of another form comes again however often it is asked for.
        with of_known_form(DESCRIBE):
            (content,) = contents
            return parse_partitions(json.loads(content))

    def list_streams(self) -> list[str]:
        """Return the names of the streams that the user may see."""
        criteria = json.dumps({"vhost": self.vhost}).encode()

        def call() -> list[str]:
            infos = self._addresses.client.list_flights(criteria, self._options(INFO_SECONDS_MAX))
            return [info.descriptor.path[-1].decode() for info in infos]

        return RetryWindow(self._retry_seconds, self._addresses).run(call)

    def read(self, wanted: OffsetRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read all rows of a range; `columns` must have the offset."""
        return (piece.rows for piece in self.read_pieces(wanted, columns, {}) if piece.rows.num_rows)

    def read_pieces(self, wanted: OffsetRange, columns: Sequence[str], filters: Mapping[str, Any]) -> Iterator[Piece]:
        """Read the rows of a range that meet the filters of a ticket.

        `columns` must have the offset: after a lost connection the read goes on behind the last one.
        """

        def rest(last: int) -> dict[str, Any]:
            ticket = {"partition": wanted.partition, "from": last + 1, "to": wanted.end, "columns": list(columns)}
            return {**ticket, **filters}

        return self._resumed(rest, wanted.start - 1)

    def read_lease(self, wanted: dict[str, Any], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read a part of a lease, whose offsets ascend and may have gaps.

        `columns` must have the offset, as for `read`. Raises DataLossError when the lease does not exist.
        """

        def whole(_: int) -> dict[str, Any]:
            return {**wanted, "columns": list(columns)}

        try:
            yield from (piece.rows for piece in self._resumed(whole, -1) if piece.rows.num_rows)
        except NotFoundError as error:
            raise DataLossError(
                f"{error}; another query uses that owner's name, or the lease was released manually"
            ) from None

    def put(self, command: dict[str, Any], schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> dict[str, int]:
        """Publish a message per row; return the broker's final answer, which counts all rows.

        Raises NotFoundError when the stream of the command was deleted meanwhile, so that rows reached none.
        The first piece of numbered or staged rows is repeated while the broker cannot be reached. After its confirm a
        lost connection is an error: the rows behind it cannot be taken from `batches` again.
        """
        pieces = (piece for batch in batches for piece in pieces_of(batch))
        first = next(pieces, None)
        if first is None:
            return {}
        descriptor = flight.FlightDescriptor.for_command(json.dumps({"vhost": self.vhost, **command}))

        def begin() -> PutCall:
            writer, results = self._addresses.client.do_put(descriptor, schema, self._options())
            call = PutCall(writer, results)
            call.begin(first)
            return call

        # Other rows would be stored twice when only the answer was lost.
        may_repeat = "producer" in command or "stage" in command
        window, broker = RetryWindow(self._retry_seconds, self._addresses), str(self._addresses)
        try:
            with window.run(begin, may_repeat=may_repeat) as call:
                for piece in pieces:
                    called(partial(call.send, piece), broker)
                answer = called(call.finish, broker)
            check_routed(command, answer)
            return answer
        except NotFoundError as error:
            # The broker publishes to a stream as to an exchange.
            stream = command.get("stream")
            raise NotFoundError(str(error).replace(f"exchange '{stream}'", f"stream '{stream}'")) from None
        except UnavailableError:
            self._addresses.leave()
            raise

    def put_nothing(self, command: dict[str, Any]) -> None:
        """Say that a producer's batch has no rows. Raises RefusedError when some of it are stored."""
        told = {"vhost": self.vhost, **command, "is_empty": True}
        descriptor = flight.FlightDescriptor.for_command(json.dumps(told))

        def say() -> None:
            writer, results = self._addresses.client.do_put(descriptor, NO_ROWS, self._options(INFO_SECONDS_MAX))
            with PutCall(writer, results) as call:
                call.finish()

        RetryWindow(self._retry_seconds, self._addresses).run(say)

    def end_producers(self, names: Sequence[str]) -> None:
        """Delete names of producers for good: later attempts to publish under them are refused for a while."""
        for start in range(0, len(names), ENDED_AT_ONCE):
            body = {"vhost": self.vhost, "producers": list(names[start : start + ENDED_AT_ONCE])}
            action = flight.Action("EndProducers", json.dumps(body).encode())

            def end(action: flight.Action = action) -> None:
                for _ in self._addresses.client.do_action(action, self._options(INFO_SECONDS_MAX)):
                    pass

            RetryWindow(self._retry_seconds, self._addresses).run(end)

    def close(self) -> None:
        self._addresses.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _resumed(self, ticket_behind: Callable[[int], dict[str, Any]], last: int) -> Iterator[Piece]:
        """Yield pieces in the order of their offsets; after a lost connection go on behind the last one."""
        window = RetryWindow(self._retry_seconds, self._addresses)
        while True:
            ticket = flight.Ticket(json.dumps({"vhost": self.vhost, **ticket_behind(last)}))
            try:
                for rows, next_offset, seen in self._pieces(ticket):
                    rest = behind(rows, last)
                    last = max(last, next_offset - 1)
                    yield Piece(rest, next_offset, seen)
                    window.renew()
                return
            except FAILURES as error:
                window.wait(error)

    def _pieces(self, ticket: flight.Ticket) -> Iterator[Piece]:
        reader = self._addresses.client.do_get(ticket, self._options(READ_SECONDS_MAX))
        try:
            yield from map(piece_of, reader)
        finally:
            # The connection stays open when a task wants no more rows.
            reader.cancel()

    def _options(self, seconds: float | None = None) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(timeout=seconds, headers=self._addresses.headers)


def check_routed(command: Mapping[str, Any], answer: Mapping[str, int]) -> None:
    """Raise NotFoundError when rows for a stream reached none: to an exchange that is no error, and no loss."""
    lost = answer.get("unroutable", 0)
    if lost and "stream" in command:
        raise NotFoundError(
            f"stream '{command['stream']}' was deleted during the write: {lost} of {answer['confirmed']} rows were not "
            "stored; declare it again and repeat the write"
        )


def behind(batch: pa.RecordBatch, last: int) -> pa.RecordBatch:
    """Return the rows behind an offset; rows are copied only where some are left out."""
    if not batch.num_rows or batch["offset"][0].as_py() > last:
        return batch
    return batch.filter(pc.greater(batch["offset"], last))
