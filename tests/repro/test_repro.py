"""Every script of this folder against a broker of this checkout: its fault must not be there.

`REPRO_COUNT` runs that many, and `REPRO_SPARK_COUNT` that many of those that need Spark, chosen by `REPRO_SEED`, which
is printed. Without `REPRO_COUNT` all are run.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted(path.stem for path in Path(__file__).parent.glob("*_*.py") if path.stem != "test_repro")
SEED = int(os.environ.get("REPRO_SEED") or random.SystemRandom().randrange(1_000_000))
# The machine lacks a requirement of the script, for example memory: a skip with that reason.
CANNOT_RUN = 3


def chosen() -> list[str]:
    count = os.environ.get("REPRO_COUNT")
    if not count:
        return SCRIPTS
    with_spark = [script for script in SCRIPTS if script.startswith("spark_")]
    others = [script for script in SCRIPTS if script not in with_spark]
    choice = random.Random(SEED)
    spark_count = int(os.environ.get("REPRO_SPARK_COUNT") or 0)
    return [
        *sorted(choice.sample(others, min(int(count), len(others)))),
        *sorted(choice.sample(with_spark, min(spark_count, len(with_spark)))),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("script", chosen())
def test_a_fault_of_an_earlier_version_is_not_there(script: str) -> None:
    command = [sys.executable, str(Path(__file__).with_name(f"{script}.py"))]
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=600)

    print(f"REPRO_SEED={SEED} {script}: {done.stdout.strip()}")
    if done.returncode == CANNOT_RUN:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stdout}{done.stderr}"
