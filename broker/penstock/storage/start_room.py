"""Checks the disk space that a start needs before the first log is opened, which changes it.

The broker reserves that much and far more, so less is left only when other programs filled the disk. Then the whole
start is refused: it would fail at some log, after the others had used the remaining space. Another program may still
take the space a moment later; then the log concerned reports it.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from penstock.model.errors import DiskFullError, Thing
from penstock.storage.logs import further_logs

# Each log begins a segment: its first page, and the page with the copy of its header.
_PAGES_OF_A_LOG = 2
_PAGE_BYTES_MIN = 4096


def check_room(data_dir: Path, vhosts: Sequence[Path]) -> None:
    """Check the space for logs. Blocks. Raises DiskFullError.

    `vhosts` are the folders whose logs are opened, with their further shards and the own logs of their queues.
    """
    logs = sum(1 + len(further_logs(vhost)) for vhost in vhosts)
    found = os.statvfs(data_dir)
    of_a_log = _PAGES_OF_A_LOG * max(found.f_frsize, _PAGE_BYTES_MIN)
    free, needed = found.f_bavail * found.f_frsize, logs * of_a_log
    if free < needed:
        raise DiskFullError(
            Thing("disk", f"of {data_dir}"),
            f"has {free} bytes free, and a start needs {needed}: {of_a_log} for each of {logs} logs",
            "free that much and start again; nothing was changed",
        )
