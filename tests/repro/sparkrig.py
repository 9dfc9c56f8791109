"""A Spark session for the scripts here that need one, and queries that copy streams with a Spark checkpoint.

Needs Java 17 and PySpark.
"""

import contextlib
import importlib.util
import json
import os
import re
import shutil
import tempfile
import uuid
from collections import Counter
from pathlib import Path

from rig import PYTHON, CannotRunError


def require_spark():
    if shutil.which("java") is None:
        raise CannotRunError("java is missing; install Java 17")
    if importlib.util.find_spec("pyspark") is None:
        raise CannotRunError("PySpark is missing; install it with: make .venv/.spark")


@contextlib.contextmanager
def session(master="local[2]"):
    """Start a small session, whose Pythons have the project on their path; yield it and a folder that goes with it."""
    require_spark()
    from pyspark.sql import SparkSession

    from penstock.spark.interpreter import write_interpreter

    with tempfile.TemporaryDirectory(prefix="repro-spark-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        os.environ.pop("PYSPARK_PYTHON", None)
        os.environ["PYSPARK_PYTHON"] = write_interpreter(folder)
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "1g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
        }
        builder = SparkSession.builder.master(master).appName("repro")
        for setting, value in settings.items():
            builder = builder.config(setting, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        try:
            yield spark, folder
        finally:
            spark.stop()


def copying(spark, uri, source, sink, checkpoint, sink_options=None, change=None, **options):
    """Return the writer of a query that copies a stream to its end; `change` may change the rows between."""
    rows = (
        spark.readStream.format("penstock")
        .options(uri=uri, stream=source, **{"startingOffsets": "earliest", **options})
        .load()
        .select("key", "body")
    )
    rows = rows if change is None else change(rows)
    return (
        rows.writeStream.format("penstock")
        .options(uri=uri, stream=sink, checkpointLocation=str(checkpoint), **(sink_options or {}))
        .trigger(availableNow=True)
    )


def lose_power(broker):
    """Kill the broker and make its next start one after an unclean reboot."""
    broker.kill()
    (broker.data / "clean").unlink(missing_ok=True)
    node = broker.data / "node.json"
    node.write_text(json.dumps(json.loads(node.read_text()) | {"boot_id": str(uuid.uuid4())}))


def run_to_the_end(writer, seconds=100):
    """Return the line that the query failed with, or an empty text; start again what was too slow for Spark."""
    from pyspark.errors import PySparkException

    for _ in range(3):
        query = None
        try:
            query = writer.start()
            if not query.awaitTermination(seconds):
                return f"not over after {seconds} s"
            return ""
        except PySparkException as error:
            if "failed to connect back" not in str(error):
                return reason(error)
        finally:
            if query is not None:
                query.stop()
    return "no Python worker connected back"


def reason(error):
    """Return the line of Spark's long text with the cause: the last one of a Python traceback, else the first."""
    text = str(error).partition("JVM stacktrace:")[0].partition("=== Streaming Query ===")[0].strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if re.match(r"([a-z_]\w*\.)+\w+: |\w*(Error|Exception): ", line)]
    line = told[-1] if told else lines[0] if lines else repr(error)
    return line.partition(". gRPC client debug context")[0].partition(" SQLSTATE")[0][:300]


def forget_batches(checkpoint, *batches):
    """Change a checkpoint as if these batches had not been begun."""
    for kind in ("offsets", "commits"):
        for batch in batches:
            for name in (str(batch), f".{batch}.crc"):
                (Path(checkpoint) / kind / name).unlink(missing_ok=True)


def bodies(connection, stream):
    return [message.body for message in connection.stream(stream).read("first", until="next")]


def compared(wanted, got):
    """Return how many rows are lost, and how many are there too often."""
    wanted, got = Counter(wanted), Counter(got)
    return (wanted - got).total(), (got - wanted).total()


def verdict(seen, row_count):
    """Return whether rows are missing without an error or there too often, and a line about it.

    `seen` has by what was tried how many rows are missing, how many are there too often, and what the query failed
    with.
    """
    told = "; ".join(
        f"{tried}: {missing} of {row_count} rows are missing, {doubled} twice, "
        + (f"the query said: {failed}" if failed else "the query ended well")
        for tried, (missing, doubled, failed) in seen.items()
    )
    return any(doubled or (missing and not failed) for missing, doubled, failed in seen.values()), told


def penstock_command():
    return str(PYTHON.with_name("penstock"))
