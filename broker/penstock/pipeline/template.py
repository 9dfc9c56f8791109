"""Templates of `penstock pipeline init`, a document or a project: they run unchanged once their streams exist."""

import tempfile
from dataclasses import replace
from pathlib import Path

from penstock.pipeline.document import read_pipeline
from penstock.pipeline.project import write_project

__all__ = ["write_template", "write_template_project"]

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
    """Write a template. Raises FileExistsError instead of overwriting."""
    with file.open("x", encoding="utf-8") as out:
        out.write(TEMPLATE.format(name=file.stem, file=file))


def write_template_project(folder: Path) -> None:
    """Write the same pipeline as a project, which stores its progress itself. Raises FileExistsError."""
    with tempfile.TemporaryDirectory() as elsewhere:
        file = Path(elsewhere) / f"{folder.resolve().name}.yaml"
        write_template(file)
        pipeline = replace(read_pipeline(file), checkpoint=str(folder.resolve() / "storage"))
        write_project(pipeline, folder)
