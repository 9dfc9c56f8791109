"""The times that a replicated confirm cannot avoid: one sync of a small write, and one round trip on loopback.

They are measured in the same minutes and on the same file system as the confirms. The file has its blocks before, as a
log's segment has. Run as a program it sends back what it gets, on a port that it prints.
"""

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median
from typing import Final

__all__ = ["round_trip_us", "sync_us"]

RECORD_BYTES: Final = 256
FILE_BYTES: Final = 1024 * 1024
COUNT: Final = 200


def sync_us(directory: Path, files: int = 1) -> float:
    """Return the median time of one write and its sync, in each of several files at the same time."""
    times: list[float] = []

    def work(number: int) -> None:
        times.extend(_sync_times(directory / f"sync-{number}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(files)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return median(times) * 1e6


def _sync_times(path: Path) -> list[float]:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    times = []
    try:
        os.write(file, bytes(FILE_BYTES))
        os.fsync(file)
        for number in range(COUNT):
            started = time.perf_counter()
            os.pwrite(file, b"x" * RECORD_BYTES, number * RECORD_BYTES)
            os.fdatasync(file)
            times.append(time.perf_counter() - started)
    finally:
        os.close(file)
        path.unlink()
    return times


def round_trip_us() -> float:
    """Return the median time of a small message to another process and back."""
    with subprocess.Popen([sys.executable, "-m", "bench.sync_time"], stdout=subprocess.PIPE) as echo:
        assert echo.stdout is not None
        port = int(echo.stdout.readline())
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return median(_round_trip(connection) for _ in range(COUNT)) * 1e6


def _round_trip(connection: socket.socket) -> float:
    started = time.perf_counter()
    connection.sendall(b"x" * RECORD_BYTES)
    left = RECORD_BYTES
    while left:
        received = len(connection.recv(left))
        if not received:
            raise RuntimeError("the process that sends back what it gets has ended")
        left -= received
    return time.perf_counter() - started


def echo() -> None:
    """Serve one connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        connection, _ = listening.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while content := connection.recv(RECORD_BYTES):
                connection.sendall(content)


if __name__ == "__main__":
    echo()
