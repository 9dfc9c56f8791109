"""The table of two commits, from invented runs."""

from pathlib import Path

from bench import against
from bench.rows import Figure, Row

ROW = Row("row", "a row", (Figure("rate", "msg/s"), Figure("broker_cpu_us", "us/msg")), lambda load: {})
IDLE = Row("idle", "an idle broker", (Figure("resident", "MB"), Figure("core_percent", "%")), lambda load: {})


def test_a_row_shows_both_spreads_the_ratio_of_medians_and_the_processor_time():
    base = [{"rate": rate, "broker_cpu_us": 0.5} for rate in (100.0, 300.0, 200.0)]
    here = [{"rate": rate, "broker_cpu_us": 0.25} for rate in (110.0, 330.0, 220.0)]

    assert against.lines(ROW, against.Pair(base, here)) == [
        ["a row", "os", "rate, msg/s", "100", "200", "300", "110", "220", "330", "1.100", "0.5", "0.25"]
    ]


def test_a_row_without_processor_time_and_a_median_of_zero_leave_cells_empty():
    runs = [{"resident": 10.0, "core_percent": 0.0}]

    first, second = against.lines(IDLE, against.Pair(runs, runs))

    assert first[-3:] == ["1.000", "", ""]
    assert second == ["", "", "core_percent, %", *["0"] * 6, "", "", ""]


def test_runs_of_the_two_alternate_and_so_does_which_is_first(monkeypatch):
    order = []

    def once(python, row, flags):
        order.append("base" if python == Path("/base/python") else "here")
        return {}

    monkeypatch.setattr(against, "once", once)

    pair = against.alternated(ROW, Path("/base/python"), 3, [])

    assert order == ["base", "here", "here", "base", "base", "here"]
    assert (len(pair.base), len(pair.here)) == (3, 3)
