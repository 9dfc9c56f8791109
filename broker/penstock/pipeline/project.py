"""A pipeline as a project of Spark Declarative Pipelines: a folder that `spark-pipelines run` accepts unchanged.

It is written from a document, whole or not at all, or read as its user made it. This module does no I/O except on the
files and knows no Spark, so errors in a project's specification are reported before anything starts.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from penstock.pipeline.document import Pipeline, Sink, mapping, read_yaml, refuse_unknown, text
from penstock.pipeline.errors import PipelineError

__all__ = ["Project", "as_stream", "is_project", "project_files", "read_project", "write_project"]

SPECIFICATIONS = ("spark-pipeline.yml", "spark-pipeline.yaml")
KEYS = ("name", "storage", "catalog", "database", "schema", "configuration", "libraries")
# Formats that can be a sink in a project: Spark itself calls their streaming writers.
SINK_FORMATS = ("penstock", "parquet")
QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--[^\n]*|/\*.*?\*/"

SPECIFICATION = """\
# Made of a document of penstock. Run it with either of:
#   penstock pipeline run {folder}
#   cd {folder} && spark-pipelines run
name: {name}
# Where Spark keeps how far each flow has come: an absolute URI. Keep it as long as what the sinks hold.
storage: {storage}
libraries:
  - glob:
      include: transformations/**
configuration:
{configuration}
"""
SOURCE = '''\
"""The stream that the pipeline reads{and_tables}."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.temporary_view
def source() -> DataFrame:
    rows = spark.readStream.format("penstock").options(**{options}).load()
    return {rows}
'''
TABLE = """

@dp.temporary_view
def {name}() -> DataFrame:
    return spark.read.format({format!r}).options(**{options}).load({path!r})
"""
SINKS = '''\
"""Where the rows of `result` go, each sink by a flow of its own."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
'''
SINK = """
dp.create_sink("sink_{number}", {format!r}, {options})


@dp.append_flow(target="sink_{number}")
def into_sink_{number}() -> DataFrame:
    return {rows}
"""
# Appended to the file of a transformation, which stays as it was.
BY_PYTHON = """

from pyspark import pipelines  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402, F811

spark = SparkSession.active()


@pipelines.temporary_view
def result() -> DataFrame:
    return transform(spark, spark.readStream.table("source"))
"""


@dataclass(frozen=True, slots=True)
class Project:
    """A folder with a specification. Spark checks its files."""

    name: str
    specification: Path


def is_project(path: Path) -> bool:
    return path.is_dir()


def read_project(folder: Path) -> Project:
    """Read a project. Raises PipelineError and OSError."""
    found = [folder / name for name in SPECIFICATIONS if (folder / name).is_file()]
    if len(found) != 1:
        raise PipelineError(f"{folder} has {'both' if found else 'neither'} of {' and '.join(SPECIFICATIONS)}")
    specification = mapping(read_yaml(found[0]), "the specification")
    refuse_unknown(specification, KEYS, "the specification")
    if "://" not in text(specification, "storage") and not text(specification, "storage").startswith("file:/"):
        raise PipelineError(
            f"storage is '{specification['storage']}'; Spark takes absolute URIs only, as file:///srv/a"
        )
    for library in specification.get("libraries") or []:
        check_library(library, folder)
    return Project(text(specification, "name"), found[0])


def check_library(library: Any, folder: Path) -> None:
    glob = mapping(mapping(library, "libraries[]").get("glob"), "libraries[].glob")
    include = text(glob, "include", "libraries[].glob")
    if "*" not in include and not (folder / include).is_file():
        raise PipelineError(f"libraries: there is no {folder / include}")


def write_project(pipeline: Pipeline, folder: Path) -> None:
    """Write a project. Raises PipelineError when the pipeline cannot be one, FileExistsError instead of overwriting."""
    files = project_files(pipeline, folder)
    folder.mkdir(parents=True)
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(content, encoding="utf-8")


def project_files(pipeline: Pipeline, folder: Path) -> dict[str, str]:
    """Return the files by name. Raises PipelineError."""
    if pipeline.metrics is not None:
        raise PipelineError("metrics: a project has none; leave it out, or run the document itself")
    if pipeline.mode != "triggered":
        raise PipelineError("mode: Spark's own pipelines run to the end of what is there; only triggered ones can be")
    settings = {"spark.sql.shuffle.partitions": "2", **pipeline.spark}
    specification = SPECIFICATION.format(
        folder=folder.name,
        name=pipeline.name,
        storage=f"{as_uri(pipeline.checkpoint)}/declared",
        configuration=indented(settings),
    )
    return {
        SPECIFICATIONS[0]: specification,
        "transformations/source.py": source_file(pipeline),
        **result_file(pipeline),
        "transformations/sinks.py": SINKS + "".join(sink_parts(pipeline.sinks)),
    }


def source_file(pipeline: Pipeline) -> str:
    rows = "rows"
    if pipeline.watermark is not None:
        column, delay = pipeline.watermark
        _, is_field, name = column.rpartition(".")
        rows += f".withColumn({name!r}, rows[{column!r}])" if is_field else ""
        rows += f".withWatermark({name!r}, {delay!r})"
    tables = "".join(
        TABLE.format(name=table.name, format=table.format, options=dict(table.options), path=table.path)
        for table in pipeline.tables
    )
    and_tables = ", and the tables that it joins" if tables else ""
    return SOURCE.format(options=dict(pipeline.source), rows=rows, and_tables=and_tables) + tables


def result_file(pipeline: Pipeline) -> dict[str, str]:
    if pipeline.python is not None:
        return {"transformations/result.py": pipeline.python.read_text(encoding="utf-8") + BY_PYTHON}
    return {"transformations/result.sql": f"CREATE TEMPORARY VIEW result AS\n{as_stream(pipeline.sql, 'source')};\n"}


def sink_parts(sinks: Iterable[Sink]) -> Iterable[str]:
    for number, sink in enumerate(sinks):
        if sink.format not in SINK_FORMATS:
            raise PipelineError(
                f"sinks[{number}]: Spark's own pipelines cannot write {sink.format}; "
                f"they can: {', '.join(SINK_FORMATS)}"
            )
        rows = f"spark.sql({as_stream(sink.select, 'result')!r})" if sink.select else 'spark.readStream.table("result")'
        yield SINK.format(number=number, format=sink.format, options=dict(sink.options), rows=rows)


def as_stream(sql: str, table: str) -> str:
    """Return the query with STREAM before the table wherever it is read, as Spark requires. Raises PipelineError."""
    place = rf"(?P<verb>\b(?:FROM|JOIN)\s+)(?P<stream>STREAM\b\s*\(?\s*)?(?P<table>{table}\b)(?!\s*[.(])"
    count = 0

    def said(match: re.Match[str]) -> str:
        nonlocal count
        if match["table"] is None:
            return match[0]
        count += 1
        return match[0] if match["stream"] else f"{match['verb']}STREAM {match['table']}"

    found = re.sub(f"{QUOTED}|{place}", said, sql, flags=re.IGNORECASE | re.DOTALL)
    if not count:
        raise PipelineError(f"the query reads {table} neither by FROM nor by JOIN: {sql.strip()[:80]}")
    return found


def as_uri(path: str) -> str:
    return path if "://" in path else Path(path).as_uri()


def indented(settings: dict[str, str]) -> str:
    return "".join(f"  {line}" for line in yaml.safe_dump(settings).splitlines(keepends=True)).rstrip()
