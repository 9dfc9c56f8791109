"""Spark's loop over micro-batches without Spark, so that it can be killed often: it starts in a second.

It makes the same calls of the reader in the same order, with the same two logs in the checkpoint and the same numbers
at the sink. Arguments: the broker's URI, queue, sink, checkpoint.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from penstock.spark.source import PenstockSource
from penstock.spark.wire import Wire

BODIES = StructType().add("offset", "long").add("body", "binary")


class Checkpoint:
    """Offsets of each batch, written before it runs, and the finished batches."""

    def __init__(self, folder: Path) -> None:
        self._folders = {kind: folder / kind for kind in ("offsets", "commits")}
        for path in self._folders.values():
            path.mkdir(parents=True, exist_ok=True)

    def put(self, kind: str, batch: int, value: Any) -> None:
        path = self._folders[kind] / str(batch)
        beside = path.with_name(f".{batch}")
        beside.write_text(json.dumps(value))
        beside.replace(path)

    def offset(self, batch: int) -> Any:
        return json.loads((self._folders["offsets"] / str(batch)).read_text())

    def last(self, kind: str) -> int:
        return max((int(path.name) for path in self._folders[kind].glob("[0-9]*")), default=-1)


def main(uri: str, queue: str, sink: str, checkpoint: str) -> None:
    options = {"uri": uri, "queue": queue, "owner": "loop", "maxOffsetsPerTrigger": "900", "minPartitions": "2"}
    reader = PenstockSource(options).streamReader(BODIES)
    log = Checkpoint(Path(checkpoint))
    batch = log.last("offsets")
    if batch > log.last("commits"):
        run(reader, uri, sink, batch, (log.offset(batch - 1) if batch else reader.initialOffset(), log.offset(batch)))
        log.put("commits", batch, {})
    reader.prepareForTriggerAvailableNow()
    start = log.offset(batch) if batch >= 0 else reader.initialOffset()
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        batch += 1
        log.put("offsets", batch, end)
        run(reader, uri, sink, batch, (start, end))
        log.put("commits", batch, {})
        start = end
    reader.stop()


def run(reader: Any, uri: str, sink: str, batch: int, between: tuple[Any, Any]) -> None:
    for task, partition in enumerate(reader.partitions(*between)):
        rows = [each.select(["body"]) for each in reader.read(partition)]
        if rows:
            command = {"stream": sink, "producer": f"loop/{task}", "sequence": (batch << 32) + 1}
            with Wire(uri) as wire:
                wire.put(command, rows[0].schema, [row.slice(at, 50) for row in rows for at in range(0, len(row), 50)])


if __name__ == "__main__":
    main(*sys.argv[1:])
