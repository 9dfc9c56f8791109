"""The examples of AMQP, as users of each language would write and run them, against a real broker."""

from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.clients import languages
from conformance.clients.languages import Example
from conformance.clients.runs import Run

THOUSAND = ["confirmed 1000", "acked 999, rejected 1", "refused: order 7, rejected"]
PRINTED: list[tuple[Callable[[Path], Example], list[str]]] = [
    (
        languages.python,
        [
            "confirmed 10",
            "returned 1: no queue takes invoice.new",
            "acked 9, rejected 1",
            "refused: order 7, rejected",
        ],
    ),
    (languages.node, THOUSAND),
    (languages.go, THOUSAND),
    (languages.java, THOUSAND),
]


@pytest.mark.parametrize(("build", "lines"), PRINTED, ids=lambda part: getattr(part, "__name__", ""))
def test_an_example_publishes_consumes_and_finds_what_it_rejected(
    build: Callable[[Path], Example], lines: list[str], run: Run
) -> None:
    example = build(run.work)

    assert example.run(f"amqp://guest:guest@127.0.0.1:{run.plain_port}/%2F") == lines
