"""`cluster.json`: which broker of which cluster a data directory belongs to; and the names of a cluster's files.

Only brokers of a cluster have `cluster.json`. It is written before anything else of a cluster, and never changed.
"""

from pathlib import Path
from typing import Final

from penstock.model.errors import StorageError, Thing
from penstock.storage.jsonfiles import read_json, write_json

CLUSTER: Final = "cluster.json"
META: Final = "meta"
"""The folder with the log of the cluster's metadata, whose shard has that name, too."""
CHECKPOINT: Final = "meta.checkpoint"
"""The file with the state of the metadata at a position of that log."""


def shard_number(name: str) -> int:
    """Return which shard of its virtual host has a name at the coordinator, and 0 for other names."""
    parts = name.split(".")
    return int(parts[1]) if len(parts) == 3 and parts[1].isdecimal() and len(parts[1]) < 4 else 0


def belong_to(directory: Path, cluster: str, broker: str) -> None:
    """Note which broker of which cluster a data directory belongs to, unless that is noted. Blocks.

    Its replicas count for the broker that they were made for. Raises StorageError when that is another one.
    """
    path = directory / CLUSTER
    wanted = {"cluster": cluster, "broker": broker}
    try:
        found = read_json(path)
    except FileNotFoundError:
        write_json(path, wanted)
        return
    if found != wanted:
        raise StorageError(
            Thing("file", str(path)),
            f"is not of broker '{broker}' of cluster '{cluster}', but has {found}",
            "start the broker that it names, or choose an empty directory with --data-dir",
        )
