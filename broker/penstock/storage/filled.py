"""The data directory that a restore or an import makes: whole or not there, whenever the process dies.

It is filled in a folder within the new directory, which may be a mount point. `vhosts.json` is moved there last: before
that a start of the broker is refused, and another restore or import begins anew.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.storage.backup_archive import TOP_FILES
from penstock.storage.cluster_backup import RESTORED, prepare_cluster
from penstock.storage.cluster_json import CHECKPOINT, META
from penstock.storage.definitions_proof import PROOF
from penstock.storage.directory import APPLIED, FORMAT, NODE, VHOSTS, directory_name, listed_files
from penstock.storage.jsonfiles import write_json
from penstock.storage.new_directory import Filling, filled_directory, unfinished_filling
from penstock.storage.records_json import write_vhosts

_FOLDER: Final = re.compile(r"[0-9a-f]{40}")
_OTHERS: Final = frozenset({NODE, META, CHECKPOINT, APPLIED, RESTORED})


@contextmanager
def filled_data_directory(target: Path, filling: Filling) -> Iterator[Path]:
    """Yield a folder to fill; it becomes the data directory when the block ends without an error.

    Raises PreconditionFailedError when the directory holds something, and StorageError when the disk fails.
    """
    with filled_directory(target, filling, VHOSTS, _may_be_moved) as folder:
        yield folder


def complete_data_directory(folder: Path, names: Sequence[str], format_: int = FORMAT) -> None:
    """Write the files that say what a filled directory holds, whose logs have at most that format.

    The logs of a cluster become those of new replicas. Blocks. Raises StorageError.
    """
    prepare_cluster(folder, names)
    # An unknown boot makes the first start skip numbers that consumers may have seen after a copy was made.
    proven = [name for name in names if (folder / directory_name(name) / PROOF).exists()]
    write_json(folder / NODE, {"format": format_, "boot_id": "", "files": listed_files(folder, proven)})
    write_vhosts(folder / VHOSTS, list(names))


def holds_data(target: Path) -> bool:
    """Return whether this is a data directory already, and not one of a restore or an import that was not completed."""
    return unfinished_filling(target, VHOSTS) is None and any((target / name).exists() for name in (VHOSTS, NODE))


def _may_be_moved(name: str) -> bool:
    return name in TOP_FILES | _OTHERS or _FOLDER.fullmatch(name) is not None
