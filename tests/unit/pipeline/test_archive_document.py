"""Documents of archives: parsing, and errors with their place."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.pipeline import PipelineError
from penstock.pipeline.archive_document import is_archive, read_archive, write_archive_template


def written(tmp_path: Path, archive: dict[str, Any], **more: Any) -> Path:
    file = tmp_path / "a.yaml"
    file.write_text(yaml.safe_dump({"name": "a", "archive": archive, **more}))
    return file


def test_what_is_left_out_has_a_default_and_paths_lie_beside_the_document(tmp_path):
    file = written(tmp_path, {"stream": "events", "to": "kept"})
    found = read_archive(file, {"PENSTOCK_URI": "penstock://a:b@host:1/v"})

    assert is_archive(file)
    assert (found.stream, found.folder, found.uri) == ("events", tmp_path / "kept", "penstock://a:b@host:1/v")
    assert (found.older_than, found.delete, found.fail_on_data_loss, found.pause_seconds) == ("1h", False, True, None)


def test_a_continuous_one_pauses_between_its_runs(tmp_path):
    file = written(tmp_path, {"stream": "e", "to": "x", "delete": True}, mode="continuous", interval="5 minutes")
    found = read_archive(file, {})

    assert (found.pause_seconds, found.delete) == (300, True)


@pytest.mark.parametrize(("age", "found"), [("12h", "12h"), ("0s", None), ("7D", "7D")])
def test_no_age_is_everything(tmp_path, age, found):
    assert read_archive(written(tmp_path, {"stream": "e", "to": "x", "olderThan": age}), {}).older_than == found


@pytest.mark.parametrize(
    ("archive", "place"),
    [
        ({"to": "x"}, "stream"),
        ({"stream": "e"}, "'to'"),
        ({"stream": "e", "to": "s3://bucket"}, "archive.to"),
        ({"stream": "e", "to": "x", "olderThan": "soon"}, "archive.olderThan"),
        ({"stream": "e", "to": "x", "olderThan": 7}, "archive.olderThan"),
        ({"stream": "e", "to": "x", "delete": "yes"}, "archive.delete"),
        ({"stream": "e", "to": "x", "fileBytesMax": 7}, "archive.fileBytesMax"),
        ({"stream": "e", "to": "x", "fileBytesMax": "1 GB"}, "archive.fileBytesMax"),
        ({"stream": "e", "to": "x", "uri": "http://a"}, "archive.uri"),
        ({"stream": "e", "to": "x", "olderThen": "1h"}, "olderThen"),
        ("events", "archive"),
    ],
)
def test_what_is_wrong_is_told_by_its_place(tmp_path, archive, place):
    with pytest.raises(PipelineError, match=place):
        read_archive(written(tmp_path, archive), {})


def test_keys_of_other_pipelines_are_refused(tmp_path):
    with pytest.raises(PipelineError, match="sinks"):
        read_archive(written(tmp_path, {"stream": "e", "to": "x"}, sinks=[]), {})
    with pytest.raises(PipelineError, match="interval"):
        read_archive(written(tmp_path, {"stream": "e", "to": "x"}, interval="5 seconds"), {})


def test_the_template_is_right_and_never_written_over_something(tmp_path):
    file = tmp_path / "orders.yaml"

    write_archive_template(file)

    assert read_archive(file, {}).stream == "orders"
    with pytest.raises(FileExistsError):
        write_archive_template(file)
