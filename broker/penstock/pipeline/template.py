"""The document that `penstock pipeline init` writes: runs as it is once its streams are there."""

from pathlib import Path

__all__ = ["write_template"]

TEMPLATE = """\
# Run it with: penstock pipeline run {file}
name: {name}
# triggered: what is there now, then the end (run it on a schedule); continuous: on and on.
mode: triggered

# Options of the source as in docs/spark.md. `uri` is PENSTOCK_URI, or the local broker, unless it is given here.
source:
  stream: {name}-in
  startingOffsets: earliest
  parsed: json
  parsedSchema: id BIGINT, amount DOUBLE
  deadLetterStream: {name}-bad

# Over the table source; a .sql file may stand here as well.
sql: |
  SELECT CAST(value.id AS STRING) AS key, to_json(value) AS body
  FROM source
  WHERE value.amount > 100

sinks:
  - stream: {name}-out

# Where Spark keeps how far it has come: with it, every row is stored once. Keep it as long as the sinks.
checkpoint: checkpoints/{name}
"""


def write_template(file: Path) -> None:
    """Raises FileExistsError rather than to write over something."""
    with file.open("x", encoding="utf-8") as out:
        out.write(TEMPLATE.format(name=file.stem, file=file))
