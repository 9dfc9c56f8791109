"""The document of a pipeline that archives a stream, checked whole before anything runs.

Its key `archive` distinguishes it from other pipelines. It needs neither Spark nor Java. This module knows no wire.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from penstock.client.errors import InvalidUriError
from penstock.client.uri import parse_uri
from penstock.pipeline.document import (
    MODES,
    beside,
    interval,
    mapping,
    refuse_unknown,
    text,
    texts,
    word,
)
from penstock.pipeline.errors import PipelineError
from penstock.spark.credentials import DEFAULT_URI

__all__ = ["Archiving", "is_archive", "read_archive", "write_archive_template"]

KEYS = ("name", "mode", "interval", "archive")
ARCHIVE_KEYS = ("uri", "stream", "to", "olderThan", "delete", "failOnDataLoss", "fileBytesMax")
AGE = re.compile(r"[0-9]{1,9}[YMDhms]")
FILE_BYTES = 128 * 2**20
FILE_BYTES_MIN, FILE_BYTES_MAX = 1024, 16 * 2**30
SECONDS = {"millisecond": 0.001, "second": 1, "minute": 60, "hour": 3600}

TEMPLATE = """\
# Run it with: penstock pipeline run {file}
name: {name}
# triggered: what is old enough now, then the end (run it on a schedule); continuous: on and on, every `interval`.
mode: triggered

archive:
  # `uri` is PENSTOCK_URI, or the local broker, unless it is given here.
  stream: orders
  # The broker's setting archive_dir, as this machine sees it.
  to: archive
  # Younger messages stay in the stream alone; 0s archives all.
  olderThan: 1h
  # Whether the broker drops what is archived. Else its retention does.
  delete: false
"""


@dataclass(frozen=True, slots=True)
class Archiving:
    name: str
    uri: str
    stream: str
    folder: Path
    # In the client's syntax: messages stored within this age stay. None: all are archived.
    older_than: str | None
    delete: bool
    fail_on_data_loss: bool
    file_bytes_max: int
    # Pause between two runs; None for one run.
    pause_seconds: float | None


def is_archive(file: Path) -> bool:
    """Return whether the document is an archive's.

    A file that is no document is left to the reader of other pipelines.
    """
    if not file.is_file():
        return False
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        return False
    return isinstance(found, dict) and "archive" in found


def read_archive(file: Path, environment: Mapping[str, str]) -> Archiving:
    """Read the document; a relative folder is beside it. Raises PipelineError and OSError."""
    document = mapping(yaml.safe_load(file.read_text(encoding="utf-8")), "the document")
    refuse_unknown(document, KEYS, "the document of an archive")
    mode = word(document, "mode", MODES, "triggered")
    found = texts(document["archive"], "archive")
    refuse_unknown(found, ARCHIVE_KEYS, "archive")
    pause = pause_seconds(interval(document, mode))
    return Archiving(
        name=text(document, "name"),
        uri=checked_uri(found.get("uri", environment.get("PENSTOCK_URI", DEFAULT_URI))),
        stream=text(found, "stream", "archive"),
        folder=folder(found, file.parent),
        older_than=age(found),
        delete=truth(found, "delete", False),
        fail_on_data_loss=truth(found, "failOnDataLoss", True),
        file_bytes_max=file_bytes(found),
        pause_seconds=pause if mode == "continuous" else None,
    )


def write_archive_template(file: Path) -> None:
    """Write a template. Raises FileExistsError instead of overwriting."""
    with file.open("x", encoding="utf-8") as out:
        out.write(TEMPLATE.format(name=file.stem, file=file))


def folder(found: Mapping[str, Any], beside_folder: Path) -> Path:
    path = beside(beside_folder, text(found, "to", "archive"))
    if "://" in path:
        raise PipelineError(
            f"archive.to is '{path}'; an archive must be in a local folder that the broker can also read"
        )
    return Path(path)


def age(found: Mapping[str, Any]) -> str | None:
    value = str(found.get("olderThan", "1h"))
    if not AGE.fullmatch(value):
        raise PipelineError(
            f"archive.olderThan is '{value}'; write a number and a unit of Y, M, D, h, m or s, as in 12h"
        )
    return value if int(value[:-1]) else None


def truth(found: Mapping[str, Any], name: str, default: bool) -> bool:
    value = str(found.get(name, default)).lower()
    if value not in {"true", "false"}:
        raise PipelineError(f"archive.{name} is '{value}'; it must be true or false")
    return value == "true"


def file_bytes(found: Mapping[str, Any]) -> int:
    value = str(found.get("fileBytesMax", FILE_BYTES))
    if not value.isdecimal() or not FILE_BYTES_MIN <= int(value) <= FILE_BYTES_MAX:
        raise PipelineError(f"archive.fileBytesMax is '{value}'; it must be from {FILE_BYTES_MIN} to {FILE_BYTES_MAX}")
    return int(value)


def checked_uri(uri: str) -> str:
    try:
        parse_uri(uri)
    except InvalidUriError as error:
        raise PipelineError(f"archive.uri: {error}") from error
    return uri


def pause_seconds(value: str) -> float:
    number, unit = value.split()
    return int(number) * SECONDS[unit.removesuffix("s")]
