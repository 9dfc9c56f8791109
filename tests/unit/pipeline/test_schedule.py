"""Runs at the times of a cron line, with the test's clock."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.schedule import checked_schedule, next_time, run_on_schedule

START = datetime(2026, 3, 2, 11, 58, tzinfo=UTC)


def test_the_next_time_is_after_now() -> None:
    assert next_time("0 * * * *", START) == datetime(2026, 3, 2, 12, tzinfo=UTC)
    assert next_time("0 * * * *", START.replace(hour=12, minute=0)) == datetime(2026, 3, 2, 13, tzinfo=UTC)


@pytest.mark.parametrize("line", ["", "often", "61 * * * *", "* * * *", "0 0 31 2 *"])
def test_what_is_no_line_of_cron_is_refused(line: str) -> None:
    with pytest.raises(PipelineError, match="not a line of cron"):
        checked_schedule(line)


def test_times_that_pass_during_a_run_are_left_out_and_a_failure_ends_nothing() -> None:
    now = [START]
    runs: list[datetime] = []
    told: list[str] = []

    def run() -> None:
        runs.append(now[0])
        # The first takes two hours and a half, and fails.
        if len(runs) == 1:
            now[0] += timedelta(hours=2, minutes=30)
            raise PipelineError("the sink is gone")

    def wait(seconds: float) -> bool:
        now[0] += timedelta(seconds=seconds)
        return len(runs) == 2

    run_on_schedule("0 * * * *", run, lambda: now[0], wait, told.append)

    assert [run.hour for run in runs] == [12, 15]
    assert "failed: the sink is gone" in told
    assert told[0] == "next run at 2026-03-02 12:00 UTC"


@pytest.mark.slow
def test_without_the_library_only_a_schedule_is_refused_with_the_way_out(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['cronsim'] = None\n"
        "from pathlib import Path\n"
        "from penstock.pipeline import PipelineError, read_pipeline, write_template\n"
        "file = Path('one.yaml')\n"
        "write_template(file)\n"
        "read_pipeline(file)\n"
        "file.write_text(file.read_text() + '\\nschedule: 15 * * * *\\n')\n"
        "try:\n    read_pipeline(file)\nexcept PipelineError as error:\n    print(error)\n"
    )

    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert done.stdout.endswith("schedule needs the package cronsim; install 'penstock[spark]'\n")
