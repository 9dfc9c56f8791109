"""perf around the load generator: queues, the cost of a message, and errors."""

from threading import Event

import pytest

from penstock.cli import perf
from penstock.cli.output import Format
from penstock.client.errors import PenstockError
from penstock.client.records import Recovery, Status


def status(cpu_seconds: float, published: int, delivered: int) -> Status:
    recovery = Recovery(0, 0, 0, 0)
    return Status("1", "n", 1.0, cpu_seconds, 0, 0, 0, 0, 0, 0, published, published, delivered, 0, recovery, "d")


def test_the_cost_is_cpu_time_per_message_that_went_through() -> None:
    assert perf._cpu_us(status(1.0, 100, 0), status(2.5, 3_000_100, 2_000_000)) == 0.5


def test_no_message_costs_no_division() -> None:
    assert perf._cpu_us(status(1.0, 0, 0), status(1.0, 0, 0)) == 0.0


def test_figures_come_back_and_options_go_in() -> None:
    assert perf._watched(lambda options: {"size": options["size"]}, {"size": 16, "seconds": 1.0}, Format.JSON) == {
        "size": 16
    }


def test_an_error_of_the_load_generator_is_raised() -> None:
    def measure(options: dict[str, object]) -> dict[str, object]:
        raise PenstockError("no connection")

    with pytest.raises(PenstockError, match="no connection"):
        perf._watched(measure, {"seconds": 1.0}, Format.JSON)


def test_a_run_that_ends_by_itself_is_not_cut_short() -> None:
    assert perf._limit(None, ends_by_itself=True) is None
    assert perf._limit(None, ends_by_itself=False) == perf.SECONDS
    assert perf._limit(2.0, ends_by_itself=True) == 2.0


def test_an_interrupted_run_has_the_broker_s_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock.cli.perf.Thread.join", interrupted)
    never = Event()

    assert perf._watched(lambda _: {"waited": never.wait(5)}, {"seconds": 1.0}, Format.JSON) is None
    never.set()
    assert perf._so_far(status(1.0, 100, 0), status(2.5, 1_100, 500), 2.0) == {
        "published": 1_000,
        "published_per_s": 500.0,
        "consumed": 500,
        "consumed_per_s": 250.0,
        "seconds": 2.0,
    }
