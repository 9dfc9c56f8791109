"""Temporary folders of running pipelines. Each run removes the folders of processes that were killed.

A process locks its folder for as long as it lives. The kernel releases the lock however the process ends, and a lock,
unlike a process id, means the same in every container that shares the folder for temporary files.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

__all__ = ["scratch_folder"]

PREFIX = "penstock-pipeline-"


def scratch_folder() -> Path:
    """Return a new folder that is deleted at the end of this process, or by a later run when it is killed."""
    delete_abandoned(Path(tempfile.gettempdir()))
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Another run may have deleted it before it was locked. The lock is open until the process ends.
        if folder.exists():
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            return folder
        os.close(lock)


def delete_abandoned(place: Path) -> None:
    """Delete the folders that no process has locked."""
    for folder in place.glob(f"{PREFIX}*"):
        # Folders of other users cannot be opened, and some are locked.
        with suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
