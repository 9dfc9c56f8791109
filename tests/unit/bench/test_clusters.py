"""The rows of `make bench-cluster`: their promised bounds, and their place in the document."""

from io import StringIO

import pytest
from rich.console import Console

from bench.cluster_catch_up import catch_up_row
from bench.cluster_faults import FaultSetting, fault_rows
from bench.cluster_moves import hand_over_row
from bench.cluster_rows import CLUSTER_ROWS, PEER_ROWS
from bench.clusters import DOCUMENT, peers
from bench.report import CLUSTER_MARKS, as_markdown, check_marks
from chaos.network import Loopback
from support.serving_cluster import NAMES

PROMISED = [
    ("cluster-one", "ratio", 0.45),
    ("cluster-many-single", "ratio", 0.45),
    ("cluster-many-batched", "ratio", 0.45),
    ("cluster-latency", "excess", 300),
    ("cluster-kill", "confirm_p95", 1.5),
    ("cluster-pause", "confirm_p95", 5),
    ("cluster-cut", "confirm_p95", 5),
    ("cluster-move", "errors", 0),
    ("cluster-move", "pause_p95", 100),
    ("cluster-catch-up", "rate", 150),
    ("cluster-catch-up", "lost", 20),
]


def setting(*, can_cut: bool) -> FaultSetting:
    return FaultSetting(Loopback(NAMES), can_cut, 20, 5, Console(file=StringIO()))


ROWS = (*CLUSTER_ROWS, *fault_rows(setting(can_cut=True)), hand_over_row(20), catch_up_row(2.0), *PEER_ROWS)


@pytest.mark.parametrize(("row", "figure", "bound"), PROMISED)
def test_each_promise_is_measured_against_its_bound(row: str, figure: str, bound: float) -> None:
    assert {(each.key, one.key): one.target for each in ROWS for one in each.figures}[row, figure] == bound


def test_nothing_is_cut_where_the_machine_allows_no_namespaces() -> None:
    assert [row.key for row in fault_rows(setting(can_cut=False))] == ["cluster-kill", "cluster-pause"]


def test_the_document_has_one_table_of_clusters() -> None:
    check_marks(DOCUMENT, CLUSTER_MARKS)


def test_every_row_has_as_many_cells_as_the_heading() -> None:
    results = {row.key: [{figure.key: 1.0 for figure in row.figures}] for row in ROWS}

    text = as_markdown(list(ROWS), results, "make bench-cluster", ", and one of some")

    assert "1 runs of each row, and one of some, on " in text
    assert {line.count("|") for line in text.splitlines() if line.startswith("|")} == {10}


def test_there_is_a_line_about_each_other_broker() -> None:
    assert [line.split()[0] for line in peers()] == ["RabbitMQ", "NATS", "LavinMQ"]
