"""The driver of the example shop-traffic dies while its rows are on their way into the stream.

The pipeline is run again: every hour of every section must be in the stream once.
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rig import PROJECT, Broker, penstock, run
from sparkrig import penstock_command, require_spark

# So many that a task has several record batches, and that Spark's table of groups has another size when it is loaded
# from the checkpoint than when it grew.
HOURS = 18_400
PATHS = ("/", "/items/7", "/img/a.png", "/cart/1", "/login")
BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
ATTEMPTS = 3


def requests():
    for hour in range(HOURS):
        at = (BEGIN + timedelta(hours=hour, minutes=5)).isoformat()
        for path in PATHS:
            yield json.dumps({"at": at, "method": "GET", "path": path, "status": 200, "bytes": hour}).encode()
    at = (BEGIN + timedelta(hours=HOURS, days=2)).isoformat()
    yield json.dumps({"at": at, "method": "HEAD", "path": "/health", "status": 200, "bytes": 0}).encode()
    yield json.dumps({"at": at, "method": "GET", "path": "/", "status": 200, "bytes": 0}).encode()


def started(document, uri, folder):
    environment = {**os.environ, "PENSTOCK_URI": uri, "TZ": "UTC", "TMPDIR": str(folder)}
    environment.pop("PYSPARK_PYTHON", None)
    command = [penstock_command(), "pipeline", "run", str(document)]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, env=environment, start_new_session=True, stdout=quiet, stderr=quiet)


def ended(process):
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def killed_within(process, stream, total):
    """Kill the driver and its JVM when a part of the rows is there; return how many were, None when none ever was."""
    while process.poll() is None:
        count = stream.info().message_count
        if 0 < count < total:
            ended(process)
            return stream.info().message_count
        if count >= total:
            ended(process)
            return None
        time.sleep(0.002)
    return None


def attempted(connection, broker, folder, stream, total):
    """Return how many rows were there at the kill, and how many are missing and doubled at the end."""
    document = shutil.copytree(PROJECT / "examples" / "pipelines", folder) / "shop-traffic.yaml"
    connection.declare_stream("traffic-by-hour")
    there = killed_within(started(document, broker.uri, folder), stream, total)
    if there is not None:
        process = started(document, broker.uri, folder)
        while process.poll() is None and not list(folder.glob("target/checkpoints/shop-traffic/1/offsets/0")):
            time.sleep(0.1)  # the second sink, Parquet, is not of interest
        ended(process)
    keys = Counter(message.key for message in stream.read("first", until="next"))
    return there, total - len(keys), keys.total() - len(keys)


def check():
    require_spark()
    total = HOURS * len(PATHS)
    deadline = time.monotonic() + 110
    told = []
    with tempfile.TemporaryDirectory(prefix="repro-spark-", ignore_cleanup_errors=True) as name, Broker() as broker:
        broker.start()
        with penstock.connect(broker.uri, native=False) as connection:
            connection.declare_stream("requests")
            connection.stream("requests").publish_many(list(requests()))
            stream = connection.stream("traffic-by-hour")
            for attempt in range(ATTEMPTS):
                if time.monotonic() > deadline:
                    break
                folder = Path(name) / f"attempt-{attempt}"
                there, missing, doubled = attempted(connection, broker, folder, stream, total)
                seen = "never a part there" if there is None else f"killed when {there:,} of {total:,} rows were stored"
                told.append(f"{seen}; at the end {missing:,} are missing and {doubled:,} there twice")
                if doubled or missing > 0:
                    return True, told[-1]
                connection.delete_stream("traffic-by-hour")
    return False, "; ".join(told)


run(check)
