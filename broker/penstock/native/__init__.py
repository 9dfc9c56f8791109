"""The one door to the native module: rooms import its names from here, so that a machine can check who does."""

from penstock._core import (
    Backup,
    Call,
    CoreError,
    DiskFullError,
    Engine,
    NotFoundError,
    RpcError,
    Server,
    Shard,
    StorageError,
    Tls,
    inspect_log,
    perf_latency,
    perf_throughput,
    repair_log,
    version,
)

__all__ = [
    "Backup",
    "Call",
    "CoreError",
    "DiskFullError",
    "Engine",
    "NotFoundError",
    "RpcError",
    "Server",
    "Shard",
    "StorageError",
    "Tls",
    "inspect_log",
    "perf_latency",
    "perf_throughput",
    "repair_log",
    "version",
]
