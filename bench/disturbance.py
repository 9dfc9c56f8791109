"""Load that must not slow messages down: a process that scrapes metrics and lists 10,000 queues, in a loop.

It runs this module in a process of its own, as a real monitor would.
"""

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import penstock
from bench.measure import Load, administration

QUEUE_COUNT = 10_000


@contextmanager
def disturbed(load: Load) -> Iterator[None]:
    """Declare the queues, then disturb the broker during the block."""
    with penstock.connect(load.uri) as connection:
        for number in range(QUEUE_COUNT):
            connection.declare_queue(f"listed-{number}", durable=False)
        command = [sys.executable, "-m", "bench.disturbance", load.uri, load.broker.health + "/metrics"]
        process = subprocess.Popen(command)
        try:
            yield
            if process.poll() is not None:
                raise RuntimeError(
                    f"the disturbance ended by itself with {process.returncode}; the figure is worthless"
                )
        finally:
            process.terminate()
            process.wait()


def disturb(uri: str, metrics: str) -> None:
    with penstock.connect(uri) as connection:
        while True:
            urllib.request.urlopen(metrics).read()
            administration(connection).list_queues()


if __name__ == "__main__":
    disturb(*sys.argv[1:])
