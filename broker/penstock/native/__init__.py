"""The native module for the broker. Other packages import its names from here; import-linter checks which ones do."""

from penstock._core import (
    Backup,
    Call,
    Engine,
    Server,
    Shard,
    Tls,
    inspect_log,
    repair_log,
    version,
)

__all__ = [
    "Backup",
    "Call",
    "Engine",
    "Server",
    "Shard",
    "Tls",
    "inspect_log",
    "repair_log",
    "version",
]
