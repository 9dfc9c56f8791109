"""Following a run, over queries in memory: every batch is reported and counted once, a failure ends the run."""

from dataclasses import dataclass, field
from threading import Event
from typing import Any

import pytest

from penstock.pipeline import PipelineError
from penstock.pipeline.running import followed
from penstock.pipeline.summary import Limits, Summary


@dataclass
class Progress:
    batchId: int  # noqa: N815 (named by Spark)
    numInputRows: int  # noqa: N815
    processedRowsPerSecond: float = 100.0  # noqa: N815
    sources: list[Any] = field(default_factory=list)


@dataclass
class FakeQuery:
    """Each look at it shows one more batch; it ends with the last one."""

    name: str
    batches: list[Progress]
    error: str | None = None
    shown: int = 0
    stops: int = 0
    waits: list[float] = field(default_factory=list)

    @property
    def isActive(self) -> bool:  # noqa: N802
        return self.shown < len(self.batches)

    @property
    def recentProgress(self) -> list[Progress]:  # noqa: N802
        self.shown = min(self.shown + 1, len(self.batches))
        return self.batches[: self.shown]

    def awaitTermination(self, seconds: float) -> bool:  # noqa: N802
        self.waits.append(seconds)
        return not self.isActive

    def exception(self) -> str | None:
        return self.error

    def stop(self) -> None:
        self.stops += 1


def follow(
    *queries: Any,
    limits: Limits | None = None,
    stopping: Event | None = None,
) -> tuple[Summary, list[str]]:
    summary = Summary()
    told: list[str] = []
    followed(list(queries), summary, told.append, limits or Limits(), stopping or Event())
    return summary, told


def test_every_batch_is_told_and_counted_once() -> None:
    first = FakeQuery("a", [Progress(0, 10), Progress(1, 0), Progress(2, 5)])
    second = FakeQuery("b", [Progress(7, 3)])

    summary, told = follow(first, second)

    assert (summary.rows, summary.batches) == ([15, 3], [2, 1])
    assert sorted(told) == [
        "a: batch 0, 10 rows, 100 rows/s",
        "a: batch 2, 5 rows, 100 rows/s",
        "b: batch 7, 3 rows, 100 rows/s",
    ]
    assert (first.stops, second.stops) == (1, 1)


def test_runs_one_after_another_add_up() -> None:
    summary = Summary()

    for rows in (4, 6):
        queries: Any = [FakeQuery("a", [Progress(0, rows)])]
        followed(queries, summary, lambda _: None, Limits(), Event())

    assert (summary.rows, summary.batches) == ([4, 6], [1, 1])


def test_a_query_that_failed_ends_the_run_with_what_it_said() -> None:
    query = FakeQuery("a", [Progress(0, 1)], error="the sink is gone\n=== Streaming Query ===\nplans")

    with pytest.raises(PipelineError, match=r"^the sink is gone$"):
        follow(query)
    assert query.stops == 1


def test_an_error_of_the_connector_is_told_by_its_sentence() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):\n"
        '  File "wire.py", line 65, in describe\n'
        "penstock.spark.errors.NotFoundError: stream 'nowhere' in vhost '/' not found; declare it first\n"
        " SQLSTATE: 38000\n=== Streaming Query ===\nplans"
    )

    with pytest.raises(PipelineError, match=r"^stream 'nowhere' in vhost '/' not found; declare it first$"):
        follow(FakeQuery("a", [Progress(0, 1)], error=text))


def test_a_run_ends_when_every_query_has_its_batches() -> None:
    first = FakeQuery("a", [Progress(number, 1) for number in range(9)])
    second = FakeQuery("b", [Progress(number, 2) for number in range(9)])

    summary, told = follow(first, second, limits=Limits(batches=3))

    assert summary.names == ["a", "b"]
    # A batch that ended while the queries were stopped is counted as well.
    assert [3 <= count < 9 for count in summary.batches] == [True, True]
    assert "stopping" in told
    assert (first.stops, second.stops) == (1, 1)


def test_a_run_that_is_told_to_stop_still_says_what_it_did() -> None:
    stopping = Event()
    stopping.set()

    summary, told = follow(FakeQuery("a", [Progress(0, 7), Progress(1, 7)]), stopping=stopping)

    assert summary.rows == [14]
    assert told[-2:] == ["stopping", "a: batch 1, 7 rows, 100 rows/s"]
