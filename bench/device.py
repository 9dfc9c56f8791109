"""The disk writes of a broker: the bytes that its device wrote, or else the kernel's count for the process.

The latter is used where the device is unknown (an overlay, a network file system). Other writers on the device count
too.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG

SECTOR_BYTES = 512
SECTORS_WRITTEN = 9  # the column of /proc/diskstats
LOOK_SECONDS = 0.05


def written_bytes(data_dir: Path, pid: int) -> int:
    device = data_dir.stat().st_dev
    numbers = [str(os.major(device)), str(os.minor(device))]
    for line in Path("/proc/diskstats").read_text().splitlines():
        fields = line.split()
        if fields[:2] == numbers:
            return int(fields[SECTORS_WRITTEN]) * SECTOR_BYTES
    return counted(pid, "io", "write_bytes")


def anonymous_bytes(pid: int) -> int:
    """Return the memory that is not backed by files."""
    return counted(pid, "status", "RssAnon") * 1_024


@contextmanager
def most_file_bytes(pid: int, figures: dict[str, float], name: str) -> Iterator[None]:
    """Record the maximum file-backed memory of a process in the block, in MB."""
    over = threading.Event()
    most = 0

    def look() -> None:
        nonlocal most
        while not over.wait(LOOK_SECONDS):
            most = max(most, counted(pid, "status", "RssFile") * 1_024)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()
        figures[name] = most / 1e6


def counted(pid: int, file: str, name: str) -> int:
    for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0])
    raise ValueError(f"/proc/{pid}/{file} has no {name}")


def stored_bytes(folder: Path) -> int:
    """Return the disk usage of a folder's files. One that is removed meanwhile counts as 0."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            found = path.stat()
            total += found.st_blocks * SECTOR_BYTES if S_ISREG(found.st_mode) else 0
    return total
