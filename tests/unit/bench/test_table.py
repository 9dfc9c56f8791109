"""The table of the benchmarks: its rows, and its figures."""

from pathlib import Path

import pytest

from bench.__main__ import ALL_ROWS, DOCUMENT
from bench.peers import PEERS
from bench.report import BEGIN, END, as_markdown, check_marks, lines, update_docs
from bench.rows import Figure, Row

# Row, figure, and its promised bound.
PROMISED = [
    ("amqp-auto-ack", "rate", 933_000),
    ("amqp-auto-ack", "broker_cpu_us", 0.5),
    ("amqp-auto-ack-large", "broker_cpu_us", 1.65),
    ("amqp-confirmed", "rate", 555_000),
    ("amqp-confirmed", "broker_cpu_us", 0.8),
    ("amqp-confirmed-large", "broker_cpu_us", 2.6),
    ("amqp-latency", "p99", 300),
    ("amqp-latency-disturbed", "p99_ratio", 3),
    ("amqp-idle", "resident", 8_192),
    ("amqp-opens", "rate", 1_000),
    ("amqp-delayed", "stored", 250),
    ("amqp-delayed", "anonymous", 30),
    ("amqp-delayed", "late_p99", 10),
    ("locks-vhosts", "waited", 2),
    ("locks-shards", "waited", 2),
    ("many-single", "rate", 400_000),
    ("many-single", "written_ratio", 3),
    ("many-batched", "rate", 400_000),
    ("many-batched", "written_ratio", 3),
    ("one-by-one", "rate", 5_000),
    ("one-by-one", "written", 4_608),
    ("backlog", "anonymous", 60),
    ("backlog", "stored", 160),
    ("backlog", "drained", 2_000_000),
    ("backlog", "start", 1),
    ("backlog", "bytes_read", 134.3),
    ("queues", "declared", 30),
    ("queues", "resident", 200),
    ("queues", "start", 3),
    ("tls-batched", "ratio", 0.6),
    ("spark-read", "cpu_ratio", 1.3),
    ("spark-count", "time_ratio", 2),
    ("spark-groups", "time_ratio", 2),
    ("spark-json", "time_ratio", 2),
    ("spark-micro-batch", "overhead", 150),
    ("spark-delay", "overhead", 60),
    ("spark-idle", "core_percent", 0.2),
]


def figures() -> dict[tuple[str, str], Figure]:
    return {(row.key, figure.key): figure for row in ALL_ROWS for figure in row.figures}


@pytest.mark.parametrize(("row", "figure", "bound"), PROMISED)
def test_what_was_promised_of_large_and_durable_loads_is_measured_against_its_bound(row, figure, bound):
    assert figures()[row, figure].target == bound


def test_every_peer_stands_beside_a_figure():
    assert set(PEERS) - set(figures()) == set()


def test_a_line_has_the_spread_the_bound_the_verdict_and_the_peer():
    row = Row("one-by-one", "one in flight", (Figure("rate", "msg/s", 5_000),), lambda load: {}, "disk")

    assert lines(row, [{"rate": 3_000.0}, {"rate": 4_000.0}, {"rate": 6_000.0}]) == [
        ["one in flight", "disk", "rate, msg/s", "3,000", "4,000", "6,000", ">= 5,000", "**no**", "LavinMQ: 3,300"]
    ]


def test_a_peer_that_is_not_installed_has_no_line():
    figures = (Figure("rate", "msg/s"), Figure("rabbitmq_rate", "msg/s"))
    row = Row("amqp", "auto-ack", figures, lambda load: {})

    assert [line[2] for line in lines(row, [{"rate": 3.0}])] == ["rate, msg/s"]
    assert [line[0] for line in lines(row, [{"rate": 3.0, "rabbitmq_rate": 1.0}])] == ["auto-ack", ""]


def test_every_row_of_the_page_has_as_many_cells_as_its_heading():
    results = {row.key: [{figure.key: 1.0 for figure in row.figures}] for row in ALL_ROWS}
    new = as_markdown(list(ALL_ROWS), results, "make bench-docs")
    old = DOCUMENT.read_text().partition(BEGIN)[2].partition(END)[0]

    counts = [{line.count("|") for line in text.splitlines() if line.startswith("|")} for text in (new, old)]

    assert counts == [{10}, {10}]


def test_the_text_between_the_marks_is_replaced(tmp_path: Path) -> None:
    document = tmp_path / "benchmarks.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")

    update_docs(document, "new\n")

    assert document.read_text() == f"before\n{BEGIN}\nnew\n{END}\nafter\n"


# A merge once left a second, older half of the document in it, whose table was never written again.
@pytest.mark.parametrize(
    "text", [f"{BEGIN}\n{END}\n{BEGIN}\n{END}\n", f"{BEGIN}\n{BEGIN}\n{END}\n", f"{END}\n{BEGIN}\n", f"{BEGIN}\n", ""]
)
def test_a_document_that_has_no_or_several_tables_is_not_written(tmp_path: Path, text: str) -> None:
    document = tmp_path / "benchmarks.md"
    document.write_text(text)

    with pytest.raises(ValueError, match=r"benchmarks\.md has \d marks"):
        update_docs(document, "new\n")

    assert document.read_text() == text


def test_the_document_has_one_table() -> None:
    check_marks(DOCUMENT)
