"""The configuration file changes while the broker runs."""

from pathlib import Path

from support import Broker
from support.waiting import eventually

SECONDS = 60


def test_a_changed_level_of_the_log_counts_without_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('log_level = "warning"\nlog_format = "json"\n')

    with Broker(tmp_path / "data", "--config", str(file)) as broker:
        assert '"ready"' not in broker.log
        file.write_text('log_level = "info"\nlog_format = "json"\n')
        eventually(lambda: "settings reloaded" in broker.log, True, SECONDS)

        file.write_text('log_level = "loud"\n')
        eventually(lambda: "changed settings are invalid" in broker.log, True, SECONDS)
        file.write_text('log_level = "info"\nlog_format = "json"\nmessage_bytes_max = 4096\n')
        eventually(lambda: "setting change needs a restart" in broker.log, True, SECONDS)

        assert broker.stop() == 0
    assert '"event": "stopped"' in broker.log
