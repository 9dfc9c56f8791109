"""Processor time of Spark: this process, its JVM and its workers."""

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["cpu_seconds"]

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """Return the CPU seconds of the whole tree; an ended process counts in its parent."""
    found = dict(processes())
    own = {os.getpid()}
    while True:
        more = {pid for pid, (parent, _) in found.items() if parent in own} - own
        if not more:
            return sum(found[pid][1] for pid in own if pid in found)
        own |= more


def processes() -> Iterator[tuple[int, tuple[int, float]]]:
    """Yield each process with its parent and the CPU seconds of itself and of its ended children."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        yield int(stat.parent.name), (int(fields[1]), sum(map(int, fields[11:15])) / TICKS_PER_SECOND)
