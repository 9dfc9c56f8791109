"""Options of `python -m chaos`."""

import pytest

from chaos.__main__ import parse
from chaos.run import FAULT_COUNT_MAX


def test_a_run_ends_by_its_time_or_after_a_number_of_faults():
    assert parse([]).faults == FAULT_COUNT_MAX
    assert parse(["--faults", "6"]).faults == 6


def test_a_run_without_faults_is_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        parse(["--faults", "0"])

    assert "--faults must be at least 1" in capsys.readouterr().err
