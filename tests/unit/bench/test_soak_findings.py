"""Findings of a soak from its samples, and which of them fail it."""

import json
from dataclasses import asdict

import pytest

from bench.soak_findings import Settings, Verdict, read_run, rows, slope
from bench.soak_ledger import Ledger
from bench.soak_samples import Sample, percentile

SETTINGS = Settings(60, 8_000_000, "a machine")


def sample(minute: int, anonymous_mb: float, excess_mb: float = 0) -> Sample:
    times = {"p50": 100.0, "p99": 900.0, "max": 5_000.0}
    return Sample(
        at_seconds=minute * 60.0,
        anonymous_bytes=int(anonymous_mb * 1e6),
        mapped_bytes=20_000_000,
        disk_bytes=90_000_000,
        disk_bytes_max=95_000_000,
        live_bytes=50_000_000,
        excess_bytes=int(excess_mb * 1e6),
        broker_cores=0.1,
        load_cores=0.2,
        descriptors=30,
        threads=9,
        confirmed=minute * 1_000,
        acknowledged=minute * 1_000,
        redelivered=0,
        waiting=0,
        visits=minute,
        compacted_bytes=minute * 1_000_000,
        os_us=times,
        disk_us=times,
    )


def verdict(**ledger: int) -> Verdict:
    return Verdict.of([Ledger("jobs", **ledger)], visits=(3, 0), left=0, failures=0)  # type: ignore[arg-type]


def test_a_run_is_read_as_it_was_written(tmp_path):
    samples = [sample(0, 50), sample(1, 51)]
    found = verdict(confirmed=2, acknowledged=2)
    lines = [
        {"settings": asdict(SETTINGS)},
        *({"sample": asdict(each)} for each in samples),
        {"verdict": asdict(found)},
    ]
    (tmp_path / "samples.jsonl").write_text("\n".join(json.dumps(line) for line in lines))

    run = read_run(tmp_path / "samples.jsonl")

    assert (run.settings, run.samples, run.verdict) == (SETTINGS, samples, found)


def test_a_run_that_was_broken_off_has_samples_and_no_verdict(tmp_path):
    lines = [{"settings": asdict(SETTINGS)}, {"sample": asdict(sample(0, 50))}]
    (tmp_path / "samples.jsonl").write_text("\n".join(json.dumps(line) for line in lines))

    run = read_run(tmp_path / "samples.jsonl")

    assert run.verdict is None
    assert [name for name, _, _ in rows(run)] == ["duration"]


def test_a_run_without_a_finding_is_whole():
    assert verdict(confirmed=5, acknowledged=5).broken == {}


@pytest.mark.parametrize("finding", ["duplicates", "misplaced", "corrupt"])
def test_a_broken_promise_fails_a_run(finding):
    assert verdict(confirmed=5, acknowledged=5, **{finding: 1}).broken == {finding: 1}


def test_a_confirmed_message_that_never_came_fails_a_run():
    assert verdict(confirmed=5, acknowledged=4).broken == {"lost": 1}


def test_the_slope_is_that_of_the_second_half(tmp_path):
    memory = [10 * minute for minute in range(31)] + [300 + minute / 60 for minute in range(31, 62)]
    lines = [{"settings": asdict(SETTINGS)}, *({"sample": asdict(sample(at, mb))} for at, mb in enumerate(memory))]
    (tmp_path / "samples.jsonl").write_text("\n".join(json.dumps(line) for line in lines))

    found = {name: value for name, value, _ in rows(read_run(tmp_path / "samples.jsonl"))}

    assert found["its slope over the second half"] == "+1.00 MB an hour"


def test_a_straight_line_has_its_slope():
    assert slope([0, 1, 2, 3], [5, 7, 9, 11]) == pytest.approx(2)
    assert slope([1], [1]) == 0


def test_a_percentile_is_one_of_the_values():
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.5) == 3.0
    assert percentile([1.0, 2.0], 1.0) == 2.0
    assert percentile([], 0.99) == 0.0
