"""Open files of the process: most are for connections, and some are always reserved for logs."""

import resource

import pytest

from penstock.node.files import connections_that_fit, raise_files_max


@pytest.mark.parametrize("files_max", [10, 1_024, 1 << 20])
def test_connections_leave_files_for_logs(files_max):
    assert 0 < connections_that_fit(files_max) < files_max


def test_raising_never_lowers():
    before, _ = resource.getrlimit(resource.RLIMIT_NOFILE)

    assert raise_files_max() >= min(before, 1 << 20)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= before
