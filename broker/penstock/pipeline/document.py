"""A pipeline's document, checked for all errors before Spark starts.

Every error names the place in the document, the rule and the remedy. This module knows no Spark.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from penstock.client.errors import InvalidUriError
from penstock.pipeline.errors import PipelineError
from penstock.spark.columns import ddl_of
from penstock.spark.errors import SparkConnectorError
from penstock.spark.options import parse_read_options, parse_write_options

__all__ = ["Pipeline", "Sink", "Table", "mapping", "read_pipeline", "read_yaml", "refuse_unknown", "text"]

MODES = ("triggered", "continuous")
OUTPUT_MODES = ("append", "update")
KEYS = (
    "name",
    "mode",
    "interval",
    "schedule",
    "source",
    "watermark",
    "tables",
    "sql",
    "python",
    "sinks",
    "checkpoint",
    "spark",
    "metrics",
)
# Formats of sinks. Spark writes jdbc in batches only, and so does deltalake: their sinks write each micro-batch as one.
SINK_FORMATS = ("penstock", "parquet", "delta", "jdbc")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Options of a source whose values are compared with those of messages, in lower case.
COMPARED = ("keyis", "routingkeyis", "headeris")
INTERVAL = re.compile(r"[1-9][0-9]* (millisecond|second|minute|hour)s?")


@dataclass(frozen=True, slots=True)
class Table:
    """A static table that the transformation can join."""

    name: str
    format: str
    path: str
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Sink:
    format: str
    options: Mapping[str, str]
    output_mode: str
    # SQL over the table `result`; empty for all of it.
    select: str

    @property
    def needs_order(self) -> bool:
        """Return whether a repeated task must have the same rows in the same order."""
        return self.format == "penstock" and not parse_write_options(self.options).staged


@dataclass(frozen=True, slots=True)
class Pipeline:
    name: str
    mode: str
    interval: str
    # A cron line, or empty.
    schedule: str
    source: Mapping[str, str]
    # Column and delay, or None: an aggregate over time needs it to finish.
    watermark: tuple[str, str] | None
    tables: tuple[Table, ...]
    sql: str
    python: Path | None
    sinks: tuple[Sink, ...]
    checkpoint: str
    spark: Mapping[str, str]
    # Address and port that serve the lag while it runs, or None.
    metrics: tuple[str, int] | None = None


def read_pipeline(file: Path) -> Pipeline:
    """Read a pipeline; relative file names are beside the document. Raises PipelineError and OSError."""
    document = mapping(read_yaml(file), "the document")
    refuse_unknown(document, KEYS, "the document")
    folder = file.parent
    mode = word(document, "mode", MODES, "triggered")
    sql, python = transformation(document, folder)
    return Pipeline(
        name=text(document, "name"),
        mode=mode,
        interval=interval(document, mode),
        schedule=schedule(document, mode),
        source=source(document, folder),
        watermark=watermark(document),
        tables=tuple(tables(document, folder)),
        sql=sql,
        python=python,
        sinks=tuple(sinks(document, folder)),
        checkpoint=beside(folder, text(document, "checkpoint")),
        spark=texts(document.get("spark", {}), "spark"),
        metrics=metrics(document),
    )


def read_yaml(file: Path) -> Any:
    """Return the content of a YAML file. Raises PipelineError, which shows nothing of it: a password may be there."""
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise PipelineError(f"{file} is not YAML{place}; check the indentation, and quote texts") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise PipelineError(f"{file} is not YAML in UTF-8; remove control characters and other encodings") from None


def source(document: Mapping[str, Any], folder: Path) -> dict[str, str]:
    given = mapping(needed(document, "source"), "source")
    check_quoted(given)
    options = found_files(texts(given, "source"), folder)
    try:
        parsed = parse_read_options(options)
        ddl_of(parsed)
    except (SparkConnectorError, InvalidUriError) as error:
        raise PipelineError(f"source: {error}") from error
    if parsed.ending is not None:
        raise PipelineError("source: 'ending...' is for batches; a triggered pipeline ends at the end of the stream")
    return options


def check_quoted(given: Mapping[str, Any]) -> None:
    """Refuse what YAML does not take for a text: 007 would be the key 7, and yes the key true."""
    for name, value in given.items():
        if name.lower() in COMPARED and not isinstance(value, str):
            raise PipelineError(
                f"source: '{name}' is not a text but what YAML makes of it, {value!r}; put it in quotes, as in "
                f'{name}: "007"'
            )


def found_files(options: dict[str, str], folder: Path) -> dict[str, str]:
    """Return the options with the full paths of files that they name."""
    found = dict(options)
    for name, value in options.items():
        # Case does not matter in the names of options.
        if name.lower() == "parsedschema" and value.startswith("@"):
            found[name] = "@" + beside(folder, value[1:])
        elif name.lower() in ("parseddescriptor", "passwordfile") and value:
            found[name] = beside(folder, value)
    return found


def transformation(document: Mapping[str, Any], folder: Path) -> tuple[str, Path | None]:
    """Return the SQL, or the file of a Python function."""
    if ("sql" in document) == ("python" in document):
        raise PipelineError("give 'sql' (a query over the table source, or the name of a .sql file) or 'python'")
    if "python" in document:
        python = Path(beside(folder, text(document, "python")))
        if not re.search(r"^def transform\(", python.read_text(encoding="utf-8"), re.MULTILINE):
            raise PipelineError(f"python: {python} has no function transform(spark, source)")
        return "", python
    sql = text(document, "sql")
    if sql.endswith(".sql"):
        sql = Path(beside(folder, sql)).read_text(encoding="utf-8")
    if not re.search(r"\bsource\b", sql, re.IGNORECASE):
        raise PipelineError("sql: the query does not read the table source, which has the stream's messages")
    return sql.strip().rstrip(";"), None


def watermark(document: Mapping[str, Any]) -> tuple[str, str] | None:
    if "watermark" not in document:
        return None
    found = texts(document["watermark"], "watermark")
    refuse_unknown(found, ("column", "delay"), "watermark")
    delay = text(found, "delay")
    if not INTERVAL.fullmatch(delay):
        raise PipelineError(f"watermark: delay is '{delay}'; write it as in '10 minutes'")
    return text(found, "column"), delay


def tables(document: Mapping[str, Any], folder: Path) -> Iterable[Table]:
    for name, value in mapping(document.get("tables", {}), "tables").items():
        where = f"tables.{name}"
        fields = dict(mapping(value, where))
        if not NAME.fullmatch(name) or name in {"source", "result"}:
            raise PipelineError(f"{where}: a table's name is letters, digits and _, and neither source nor result")
        refuse_unknown(fields, ("format", "path", "options"), where)
        path = Path(beside(folder, text(fields, "path")))
        if not path.exists():
            raise PipelineError(f"{where}: there is no {path}")
        yield Table(name, text(fields, "format"), str(path), texts(fields.get("options", {}), f"{where}.options"))


def sinks(document: Mapping[str, Any], folder: Path) -> Iterable[Sink]:
    found = needed(document, "sinks")
    if not isinstance(found, list) or not found:
        raise PipelineError("sinks must be a list")
    for number, value in enumerate(found):
        where = f"sinks[{number}]"
        fields = texts(value, where)
        kind = word(fields, "format", SINK_FORMATS, "penstock", where)
        output_mode = word(fields, "outputMode", OUTPUT_MODES, "append", where)
        select = fields.get("select", "")
        options = {name: each for name, each in fields.items() if name not in {"format", "outputMode", "select"}}
        if kind == "penstock":
            options = staged_by_default(found_files(options, folder), where)
            check_written(options, where)
        elif kind == "jdbc":
            needed(options, "url", where)
            needed(options, "dbtable", where)
        else:
            options["path"] = beside(folder, text(options, "path", where))
            if kind == "delta" and find_spec("deltalake") is None:
                raise PipelineError(f"{where}: delta needs the package deltalake; install 'penstock[delta]'")
        if output_mode == "update" and kind != "jdbc":
            raise PipelineError(
                f"{where}: Spark writes {kind} by append only; an aggregate over time appends once a watermark says "
                "that its window is over"
            )
        yield Sink(kind, options, output_mode, select)


def staged_by_default(options: dict[str, str], where: str) -> dict[str, str]:
    """Return the options with `staged`, so that a transformation may shuffle its rows, unless they turn it off."""
    given = {name.lower() for name in options}
    if "staged" in given:
        return options
    if "durability" in given:
        raise PipelineError(
            f"{where}: 'durability' needs 'staged: false', for transformations that only select, filter and map rows"
        )
    return {**options, "staged": "true"}


def check_written(options: Mapping[str, str], where: str) -> None:
    try:
        parse_write_options(options)
    except (SparkConnectorError, InvalidUriError) as error:
        raise PipelineError(f"{where}: {error}") from error


def interval(document: Mapping[str, Any], mode: str) -> str:
    if "interval" not in document:
        return "1 second"
    found = text(document, "interval")
    if mode != "continuous":
        raise PipelineError("interval is not for triggered pipelines; set mode to continuous, or use a schedule")
    if not INTERVAL.fullmatch(found):
        raise PipelineError(f"interval is '{found}'; write it as in '5 seconds'")
    return found


def schedule(document: Mapping[str, Any], mode: str) -> str:
    if "schedule" not in document:
        return ""
    if mode != "triggered":
        raise PipelineError("schedule: a continuous pipeline never ends; set mode to triggered, or leave it out")
    if find_spec("cronsim") is None:
        raise PipelineError("schedule needs the package cronsim; install 'penstock[spark]'")
    # Archives read their documents with this module, and the extra for them is without cronsim.
    from penstock.pipeline.schedule import checked_schedule

    return checked_schedule(text(document, "schedule"))


def metrics(document: Mapping[str, Any]) -> tuple[str, int] | None:
    if "metrics" not in document:
        return None
    address, _, port = text(document, "metrics").rpartition(":")
    if not address or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise PipelineError("metrics must be an address and a port, such as 127.0.0.1:9464")
    return address.strip("[]"), int(port)


def beside(folder: Path, path: str) -> str:
    """Return a path relative to the document; a URI unchanged."""
    return path if "://" in path else str((folder / path).resolve())


def mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise PipelineError(f"{where} must be names and values")
    return value


def texts(value: Any, where: str) -> dict[str, str]:
    """Return names and plain values, the values in Spark's syntax."""
    found = {}
    for name, each in mapping(value, where).items():
        if isinstance(each, bool):
            found[name] = str(each).lower()
        elif isinstance(each, str | int | float):
            found[name] = str(each)
        else:
            raise PipelineError(f"{where}.{name} must be a text, a number, true or false")
    return found


def needed(fields: Mapping[str, Any], name: str, where: str = "the document") -> Any:
    found = fields.get(name)
    if found is None or found == "":
        raise PipelineError(f"{where} lacks '{name}'")
    return found


def text(fields: Mapping[str, Any], name: str, where: str = "the document") -> str:
    found = needed(fields, name, where)
    if not isinstance(found, str):
        raise PipelineError(f"{name} must be a text")
    return found


def word(
    fields: Mapping[str, Any], name: str, words: tuple[str, ...], default: str, where: str = "the document"
) -> str:
    found = fields.get(name, default)
    if found not in words:
        raise PipelineError(f"{where}: {name} is '{found}'; it must be one of {', '.join(words)}")
    return str(found)


def refuse_unknown(fields: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for name in fields:
        if name not in known:
            raise PipelineError(f"{where} has '{name}'; it may have: {', '.join(known)}")
