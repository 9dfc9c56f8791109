"""Keeps in the Spark checkpoint of a sink which target it writes to: the progress there belongs to that target alone.

A sink that is added before others changes their numbers, and so their checkpoints: rows would be stored again, left
out, or both. Such a run is refused. The file is written by Hadoop, as a checkpoint may be on any storage of Spark's.
"""

import json
from contextlib import closing
from hashlib import sha256
from typing import Any

from pyspark.sql import SparkSession

from penstock.pipeline.document import Sink
from penstock.pipeline.errors import PipelineError
from penstock.spark.options import parse_write_options

__all__ = ["check_kept_target", "target_of"]

FILE = "penstock-target.json"
# Spark writes this into a Parquet folder: the number of the newest batch there.
PARQUET_BATCHES = "_spark_metadata"
REMEDY = "put new sinks behind the others and leave the order as it is, or name another 'checkpoint'"


def target_of(sink: Sink) -> str:
    """Return a target's name, without a secret that a URL may have."""
    if sink.format == "penstock":
        options = parse_write_options(sink.options)
        return f"stream {options.stream}" if options.stream else f"exchange {options.exchange} {options.routing_key}"
    if sink.format == "jdbc":
        digest = sha256(sink.options["url"].encode()).hexdigest()[:8]
        return f"table {sink.options['dbtable']} ({digest})"
    return f"{sink.format} {sink.options['path']}"


def check_kept_target(spark: SparkSession, checkpoint: str, number: int, sink: Sink) -> None:
    """Raise PipelineError when the sink's checkpoint is of another target; keep the target where none is kept."""
    folder, target = f"{checkpoint}/{number}", target_of(sink)
    file = File(spark, f"{folder}/{FILE}")
    kept = file.read()
    if not kept:
        is_new = not File(spark, f"{folder}/metadata").exists()
        if is_new and sink.format == "parquet" and File(spark, f"{sink.options['path']}/{PARQUET_BATCHES}").exists():
            raise PipelineError(
                f"sinks[{number}]: {target} has rows of another checkpoint, and Spark would leave out as many batches "
                f"as it has; {REMEDY}, or another 'path'"
            )
        file.write(json.dumps({"target": target}))
        return
    before = json.loads(kept)["target"]
    if before != target:
        raise PipelineError(
            f"sinks[{number}] is {target}, and its checkpoint has the progress of {before}: rows would be stored twice "
            f"or left out; {REMEDY}"
        )


class File:
    """A short text in ASCII on a file system of Hadoop's."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._path = jvm.org.apache.hadoop.fs.Path(path)
        self._system = self._path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())

    def exists(self) -> bool:
        return bool(self._system.exists(self._path))

    def read(self) -> str:
        """Return the text; an empty one where there is no file, or one that a run that died left empty."""
        if not self.exists():
            return ""
        with closing(self._system.open(self._path)) as stream:
            return str(stream.readLine() or "")

    def write(self, text: str) -> None:
        with closing(self._system.create(self._path, True)) as stream:
            stream.writeBytes(text)
