"""The archiving pipeline, killed at any instant while messages arrive.

Each message exists once, in the files alone and in what Flight reads across files and log.
"""

import base64
import json
import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pytest
from pyarrow import flight

import penstock
from penstock.archive.folder import folder_of
from support import Broker
from support.broker import penstock_command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

KILLS = int(os.environ.get("ARCHIVE_KILLS", "6"))
SEED = int(os.environ.get("ARCHIVE_KILL_SEED", "0")) or random.randrange(2**32)
SECONDS_MAX = 90


class Publishing:
    """Publishes numbers until the block ends; `count` of them are confirmed."""

    def __init__(self, broker: Broker) -> None:
        self.count = 0
        self._uri = broker.uri()
        self._is_over = threading.Event()

    @contextmanager
    def going_on(self) -> Iterator[None]:
        thread = threading.Thread(target=self._publish)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join()

    def _publish(self) -> None:
        with penstock.connect(self._uri, native=False) as connection:
            stream = connection.stream("clicks")
            while not self._is_over.wait(0.05):
                numbers = range(self.count, self.count + 200)
                stream.publish_keyed((b"%d" % number, b"%d " % number + b"x" * 300) for number in numbers)
                self.count += len(numbers)


def document(folder: Path, mode: dict[str, str]) -> Path:
    file = folder / f"{mode['mode']}.yaml"
    archive = {"stream": "clicks", "to": str(folder / "archive"), "olderThan": "0s", "delete": True}
    file.write_text(json.dumps({"name": "clicks-archive", **mode, "archive": archive}))
    return file


def start(file: Path, broker: Broker) -> subprocess.Popen[bytes]:
    command = [penstock_command(), "pipeline", "run", str(file)]
    return subprocess.Popen(command, env={**os.environ, "PENSTOCK_URI": broker.uri()}, stderr=subprocess.DEVNULL)


def wait_for_work(folder: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until the process has an unfinished file."""
    before = len(list(folder.glob("date=*/*")))
    give_up = time.monotonic() + SECONDS_MAX
    while len(list(folder.glob("date=*/*"))) <= before:
        assert process.poll() is None, "it ended by itself"
        assert time.monotonic() < give_up
        time.sleep(0.001)


def numbers(bodies: pa.ChunkedArray) -> list[int]:
    return sorted(int(body.partition(b" ")[0]) for body in bodies.to_pylist())


def test_every_message_is_archived_once_whenever_the_pipeline_is_killed(tmp_path: Path) -> None:
    print(f"ARCHIVE_KILL_SEED={SEED}")
    chance = random.Random(SEED)
    settings = tmp_path / "penstock.toml"
    sizes = "segment_bytes_min = 65536\nsegment_bytes_max = 65536\n"
    settings.write_text(f'{sizes}archive_dir = "{tmp_path / "archive"}"\n')
    folder = folder_of(tmp_path / "archive", "/", "clicks")
    on_and_on = document(tmp_path, {"mode": "continuous", "interval": "10 milliseconds"})
    with Broker(tmp_path / "data", "--config", str(settings)) as broker:
        with penstock.connect(broker.uri()) as connection:
            connection.declare_stream("clicks", partitions=2)
        publishing = Publishing(broker)
        with publishing.going_on():
            for _ in range(KILLS):
                process = start(on_and_on, broker)
                wait_for_work(folder, process)
                time.sleep(chance.choice([0, 0.005, 0.05, 0.5]) * chance.random())
                process.kill()
                process.wait()
        assert start(document(tmp_path, {"mode": "triggered"}), broker).wait(SECONDS_MAX) == 0

        expected = list(range(publishing.count))
        kept = pyarrow.dataset.dataset(folder, format="parquet", partitioning="hive").to_table()
        assert numbers(kept["body"]) == expected
        assert numbers(union(broker)["body"]) == expected
        with penstock.connect(broker.uri()) as connection:
            assert any(one.first > 1 for one in connection.stream("clicks").offsets()), "nothing was dropped"


def union(broker: Broker) -> pa.Table:
    token = base64.b64encode(b"guest:guest").decode()
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Basic {token}".encode())])
    with flight.FlightClient(f"grpc://{broker.address}") as client:
        info = client.get_flight_info(flight.FlightDescriptor.for_path("clicks"), options)
        return pa.concat_tables(client.do_get(each.ticket, options).read_all() for each in info.endpoints)
