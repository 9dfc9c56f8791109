"""The end of a broker in a cluster: a stop that is marked as clean leaves nothing to a page cache."""

import os
from pathlib import Path

import pytest

from penstock.node.in_cluster.parts import sync_logs
from penstock.storage import DataDirectory


def test_a_stop_syncs_the_logs_of_all_directories_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.add(os.fstat(descriptor).st_ino))
    with DataDirectory.open(tmp_path) as directory:
        paths = [tmp_path / "meta" / "msgs.0", directory.vhost_directory("made in this run") / "msgs.0"]
        for path in paths:
            path.parent.mkdir()
            path.touch()

        sync_logs(directory)

        assert synced == {path.stat().st_ino for path in paths}
