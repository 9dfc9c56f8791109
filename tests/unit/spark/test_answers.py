"""Answers of a broker in another form than this release reads are refused by one sentence, and never as a loss."""

import json
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.described import parse_partitions
from penstock.spark.errors import DataLossError, NotFoundError, SparkConnectorError, UnavailableError
from penstock.spark.pieces import piece_of
from penstock.spark.ranges import OffsetRange
from penstock.spark.wire import Wire
from support.fake_flight import FakeFlight

WHOLE: dict[str, Any] = {
    "stream": "a",
    "partition": "a",
    "id": "1",
    "first": 1,
    "next": 5,
    "rows": 4,
    "bytes": 4,
    "runs": [[1, 5]],
}
OTHERS: list[Any] = [
    [],
    "text",
    {},
    {"partitions": 7},
    {"partitions": [7]},
    *({"partitions": [{key: value for key, value in WHOLE.items() if key != left_out}]} for left_out in WHOLE),
    *({"partitions": [{**WHOLE, key: None}]} for key in WHOLE),
    {"partitions": [{**WHOLE, "next": "5"}]},
    {"partitions": [{**WHOLE, "runs": [[1]]}]},
    {"partitions": [{**WHOLE, "runs": [[1, True]]}]},
    {"partitions": [{**WHOLE, "at_timestamp": "x"}]},
]
SENTENCE = (
    r"^the broker answered .* in a form that this release does not read; use releases of both that belong together$"
)


def is_plain(error: SparkConnectorError) -> bool:
    return not isinstance(error, DataLossError | NotFoundError | UnavailableError)


@pytest.mark.parametrize("answer", OTHERS, ids=str)
def test_a_description_of_another_form_is_refused(answer: Any) -> None:
    with pytest.raises(SparkConnectorError, match=SENTENCE) as refused:
        parse_partitions(answer)
    assert is_plain(refused.value)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b"{}"])
def test_a_description_that_cannot_be_read_is_no_missing_stream_and_asked_for_once(
    server: FakeFlight, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    asked = []

    def answer(context: Any, action: Any) -> list[bytes]:
        asked.append(action)
        return [body]

    monkeypatch.setattr(server, "do_action", answer)
    with Wire(server.uri) as wire, pytest.raises(SparkConnectorError, match=SENTENCE) as refused:
        wire.describe(("events",))

    assert is_plain(refused.value)
    assert len(asked) == 1


@pytest.mark.parametrize("report", ["", "[1]", "{}", '{"next": 4}', '{"next": "4", "seen": 1}', "[" * 100_000])
def test_a_report_of_another_form_is_refused(report: str) -> None:
    chunk = SimpleNamespace(data=pa.record_batch({"offset": [1]}), app_metadata=pa.py_buffer(report.encode()))

    with pytest.raises(SparkConnectorError, match=SENTENCE) as refused:
        piece_of(chunk)
    assert is_plain(refused.value)


def test_a_read_with_a_report_of_another_form_is_no_missing_stream(
    server: FakeFlight, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.declare("events")
    server.publish("events", b"a")
    batches = server._batches

    def other(*asked: Any) -> Any:
        return ((rows, json.dumps({"behind": 2}).encode()) for rows, _ in batches(*asked))

    monkeypatch.setattr(server, "_batches", other)
    with Wire(server.uri) as wire, pytest.raises(SparkConnectorError, match=SENTENCE) as refused:
        list(wire.read_pieces(OffsetRange("events", 1, 2), ["offset"], {}))
    assert is_plain(refused.value)
