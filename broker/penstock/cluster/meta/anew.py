"""A broker whose metadata is of a time that a recovery has lost: it sets that aside, and takes the recovered one.

Its log of the metadata and the files of that state go to the folder `set-aside`. The logs of its virtual hosts stay in
their places; later the ones are set aside that the recovered metadata does not name. Each step may be done already, so
a start repeats what was interrupted.
"""

import shutil
from pathlib import Path
from typing import Final

from penstock.cluster.meta.checkpoint import Applied, write_applied
from penstock.native import read_replica
from penstock.storage.cluster_json import CHECKPOINT, META
from penstock.storage.directory import APPLIED
from penstock.storage.jsonfiles import sync_directory, write_file
from penstock.storage.limits_json import USER_LIMITS
from penstock.storage.setting_aside import SET_ASIDE, complete, set_aside

ANEW: Final = "meta.anew"
"""The file that says that the next start sets the metadata aside."""
_STATE: Final = (CHECKPOINT, APPLIED, "users.json", "vhosts.json", USER_LIMITS)


def mark_anew(directory: Path) -> None:
    """Have the next start on a data directory set the metadata aside. Blocks."""
    write_file(directory / ANEW, b"")


def begin_anew(directory: Path) -> Path | None:
    """Set the metadata aside if that is marked, and return where it is. Blocks. Raises StorageError."""
    if not (directory / ANEW).exists():
        return None
    log = directory / META
    complete(log)
    identity = read_replica(str(log))
    if identity is not None:
        _keep_state(directory, directory / SET_ASIDE / f"{META}.{identity.replica}.state")
        set_aside(log, identity.replica)
    write_applied(directory / APPLIED, Applied(0, begins_anew=True))
    (directory / CHECKPOINT).unlink(missing_ok=True)
    (directory / ANEW).unlink()
    sync_directory(directory)
    return directory / SET_ASIDE


def _keep_state(directory: Path, target: Path) -> None:
    target.mkdir(mode=0o750, parents=True, exist_ok=True)
    for name in _STATE:
        if (directory / name).exists():
            shutil.copyfile(directory / name, target / name)
            (target / name).chmod(0o600)
    sync_directory(target)
    sync_directory(target.parent)
