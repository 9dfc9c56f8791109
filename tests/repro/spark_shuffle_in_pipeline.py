"""A pipeline distributes its rows by key, on a cluster of two workers.

Its driver dies while rows are on their way into the stream, and the pipeline is run again: every row must be in the
stream once.
"""

import os
import signal
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

from rig import Broker, penstock, run
from sparkrig import bodies, penstock_command, require_spark

ROWS, PARTITIONS = 240_000, 12
PIPELINE = """\
name: by-key
source: {stream: events, startingOffsets: earliest}
sql: SELECT key, body FROM source DISTRIBUTE BY key
sinks:
  - stream: %s
checkpoint: checkpoints-%s
spark:
  spark.executor.memory: 512m
  # Small pieces, so that the driver can die between two.
  spark.sql.execution.arrow.maxRecordsPerBatch: 2000
  # A task that fetches another worker's blocks one by one does so in an order drawn by chance. With Spark's default the
  # order also changes, but not in every run: which worker gets which task decides.
  spark.reducer.maxBlocksInFlightPerAddress: 1
"""
ATTEMPTS = 3


def started(document, uri, folder):
    environment = {**os.environ, "PENSTOCK_URI": uri, "SPARK_LOCAL_DIRS": str(folder), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["TMPDIR"] = str(folder)  # a driver that is killed leaves its folder
    environment.pop("PYSPARK_PYTHON", None)
    command = [penstock_command(), "pipeline", "run", "--master", "local-cluster[2,1,512]", str(document)]
    return subprocess.Popen(
        command,
        env=environment,
        start_new_session=True,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=(folder / "log").open("ab"),
    )


def ended(process):
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def attempted(connection, broker, folder, rows, attempt):
    """Return how many rows were there at the kill, and how many are missing and doubled at the end."""
    sink = f"sink-{attempt}"
    connection.declare_stream(sink)
    stream = connection.stream(sink)
    document = folder / f"{sink}.yaml"
    document.write_text(PIPELINE % (sink, sink))
    process = started(document, broker.uri, folder)
    there = 0
    while process.poll() is None and not there:
        time.sleep(0.002)
        there = stream.info().message_count
    ended(process)
    time.sleep(3)  # the workers notice that their driver is gone
    there = stream.info().message_count
    process = started(document, broker.uri, folder)
    try:
        if process.wait(timeout=90):
            raise RuntimeError(f"the second run ended with {process.returncode}: {(folder / 'log').read_text()[-500:]}")
    finally:
        ended(process)
    wanted, got = Counter(rows), Counter(bodies(connection, sink))
    return there, (wanted - got).total(), (got - wanted).total()


def check():
    require_spark()
    told = []
    rows = [b"%d" % number for number in range(ROWS)]
    deadline = time.monotonic() + 95
    with tempfile.TemporaryDirectory(prefix="repro-spark-", ignore_cleanup_errors=True) as name, Broker() as broker:
        broker.start()
        with penstock.connect(broker.uri, native=False) as connection:
            connection.declare_stream("events", partitions=PARTITIONS)
            with_keys = connection.stream("events")
            for number in range(PARTITIONS * 4):
                with_keys.publish_many(rows[number :: PARTITIONS * 4], key=b"%d" % number)
            for attempt in range(ATTEMPTS):
                if time.monotonic() > deadline:
                    break
                there, missing, doubled = attempted(connection, broker, Path(name), rows, attempt)
                told.append(
                    f"killed when {there:,} of {ROWS:,} rows were stored; after the second run {missing:,} are missing "
                    f"and {doubled:,} there twice"
                )
                if missing or doubled:
                    return True, told[-1]
    return False, "; ".join(told)


run(check)
