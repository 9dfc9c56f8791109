"""Documents of pipelines: parsing, and errors with their place before Spark starts."""

import traceback
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.pipeline import PipelineError, read_pipeline, write_template
from penstock.pipeline.archive_document import is_archive, read_archive
from penstock.pipeline.document import found_files

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "pipelines"
SMALLEST: dict[str, Any] = {
    "name": "copy",
    "source": {"stream": "a"},
    "sql": "SELECT body FROM source",
    "sinks": [{"stream": "b"}],
    "checkpoint": "checkpoints/copy",
}


def written(folder: Path, **changes: Any) -> Path:
    """Write the smallest document with changes; None removes a key."""
    document = {name: value for name, value in {**SMALLEST, **changes}.items() if value is not None}
    file = folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def test_the_smallest_document_is_a_triggered_pipeline(tmp_path: Path) -> None:
    pipeline = read_pipeline(written(tmp_path))

    assert (pipeline.name, pipeline.mode, pipeline.source) == ("copy", "triggered", {"stream": "a"})
    assert [(sink.format, sink.options, sink.output_mode) for sink in pipeline.sinks] == [
        ("penstock", {"stream": "b", "staged": "true"}, "append")
    ]
    assert pipeline.checkpoint == str(tmp_path / "checkpoints" / "copy")


def test_files_are_found_whatever_the_case_of_their_options(tmp_path: Path) -> None:
    """They were looked for in the working folder."""
    (tmp_path / "order.avsc").write_text("{}")
    options = {"passwordfile": "password", "PARSEDDESCRIPTOR": "a.desc", "parsedschema": "@order.avsc", "stream": "a"}

    assert found_files(options, tmp_path) == {
        "passwordfile": str(tmp_path / "password"),
        "PARSEDDESCRIPTOR": str(tmp_path / "a.desc"),
        "parsedschema": f"@{tmp_path / 'order.avsc'}",
        "stream": "a",
    }


def test_metrics_are_served_at_an_address(tmp_path: Path) -> None:
    assert read_pipeline(written(tmp_path)).metrics is None
    assert read_pipeline(written(tmp_path, metrics="0.0.0.0:9464")).metrics == ("0.0.0.0", 9464)
    assert read_pipeline(written(tmp_path, metrics="[::1]:9464")).metrics == ("::1", 9464)


def test_files_are_looked_for_beside_the_document(tmp_path: Path) -> None:
    (tmp_path / "query.sql").write_text("SELECT * FROM source;\n")
    (tmp_path / "rooms.csv").write_text("room\nhall\n")
    tables = {"rooms": {"format": "csv", "path": "rooms.csv", "options": {"header": True}}}

    pipeline = read_pipeline(
        written(tmp_path, sql="query.sql", tables=tables, sinks=[{"format": "parquet", "path": "out"}])
    )

    assert pipeline.sql == "SELECT * FROM source"
    assert (pipeline.tables[0].path, pipeline.tables[0].options) == (str(tmp_path / "rooms.csv"), {"header": "true"})
    assert pipeline.sinks[0].options == {"path": str(tmp_path / "out")}


@pytest.mark.parametrize(
    "value", ["%s3cret", "@s3cret", "*s3cret", "!s3cret x", "[s3cret", "a: b: s3cret", "\x00s3cret"]
)
def test_an_error_in_the_syntax_names_the_place_and_shows_no_value(tmp_path: Path, value: str) -> None:
    """A password that begins with a special character and has no quotes was printed."""
    file = tmp_path / "pipeline.yaml"
    file.write_text(f"name: copy\nsource:\n  stream: a\n  password: {value}\n")

    with pytest.raises(PipelineError, match="is not YAML") as refused:
        read_pipeline(file)

    assert "s3cret" not in "".join(traceback.format_exception(refused.value))


def test_a_password_file_is_looked_for_beside_the_document(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("s3cret\n")
    options = {"user": "loader", "passwordFile": "password"}

    pipeline = read_pipeline(written(tmp_path, source={"stream": "a", **options}, sinks=[{"stream": "b", **options}]))

    file = str(tmp_path / "password")
    assert (pipeline.source["passwordFile"], pipeline.sinks[0].options["passwordFile"]) == (file, file)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"name": None}, "the document lacks 'name'"),
        ({"sink": {}}, "the document has 'sink'; it may have: name"),
        ({"mode": "batch"}, "mode is 'batch'; it must be one of triggered, continuous"),
        ({"interval": "5 seconds"}, "not for triggered pipelines"),
        ({"mode": "continuous", "interval": "often"}, "write it as in '5 seconds'"),
        ({"metrics": "9464"}, "metrics must be an address and a port"),
        ({"metrics": "127.0.0.1:70000"}, "metrics must be an address and a port"),
        ({"metrics": 9464}, "metrics must be a text"),
        ({"mode": "continuous", "schedule": "0 * * * *"}, "a continuous pipeline never ends"),
        ({"schedule": "hourly"}, "schedule is 'hourly', not a line of cron"),
        ({"source": {"topic": "a"}}, "source: there is no option 'topic'"),
        ({"source": {"stream": "a", "columns": "text"}}, "source: there is no column 'text'"),
        ({"source": {"stream": "a", "endingOffsets": "latest"}}, "source: 'ending...' is for batches"),
        ({"source": {"stream": ["a"]}}, "source.stream must be a text"),
        ({"sql": "SELECT 1"}, "does not read the table source"),
        ({"python": "a.py"}, "give 'sql'"),
        ({"sql": None}, "give 'sql'"),
        ({"sinks": []}, "lacks 'sinks'|must be a list"),
        ({"sinks": [{"stream": "b", "exchange": "c"}]}, r"sinks\[0\]: give either"),
        ({"sinks": [{"stream": "b"}, {"format": "csv"}]}, r"sinks\[1\]: format is 'csv'"),
        ({"sinks": [{"format": "parquet"}]}, r"sinks\[0\] lacks 'path'"),
        ({"sinks": [{"format": "jdbc", "url": "jdbc:x"}]}, r"sinks\[0\] lacks 'dbtable'"),
        ({"sinks": [{"stream": "b", "outputMode": "update"}]}, "penstock by append only"),
        ({"sinks": [{"stream": "b", "durability": "os"}]}, r"sinks\[0\]: 'durability' needs 'staged: false'"),
        ({"sinks": [{"stream": "b", "Staged": True, "durability": "os"}]}, "leave 'durability' out"),
        ({"sinks": [{"stream": "b", "outputMode": "complete"}]}, "one of append, update"),
        ({"tables": {"source": {"format": "csv", "path": "x"}}}, "neither source nor result"),
        ({"tables": {"rooms": {"format": "csv", "path": "gone.csv"}}}, "there is no .*gone.csv"),
        ({"watermark": {"column": "timestamp", "delay": "soon"}}, "watermark: delay is 'soon'"),
        ({"spark": {"spark.x": {"y": 1}}}, "spark.spark.x must be a text"),
    ],
)
def test_what_is_wrong_is_told_by_its_place(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(PipelineError, match=text):
        read_pipeline(written(tmp_path, **changes))


@pytest.mark.parametrize("name", ["staged", "STAGED"])
def test_a_sink_is_staged_unless_the_document_says_otherwise(tmp_path: Path, name: str) -> None:
    pipeline = read_pipeline(written(tmp_path, sinks=[{"stream": "b", name: False, "durability": "os"}]))

    assert pipeline.sinks[0].options == {"stream": "b", name: "false", "durability": "os"}


@pytest.mark.parametrize("option", ["keyIs", "routingKeyIs", "keyis"])
@pytest.mark.parametrize("value", ["007", "yes", "1.10", "0x1F", "1_000", "2026-01-01", "~", "[a]"])
def test_a_key_that_yaml_takes_for_something_else_is_to_be_quoted(tmp_path: Path, option: str, value: str) -> None:
    """Rows with the key 7 were read instead of those with 007, and those with the key true instead of yes."""
    document = written(tmp_path).read_text().replace("  stream: a\n", f"  stream: a\n  {option}: VALUE\n")
    file = tmp_path / "pipeline.yaml"
    file.write_text(document.replace("VALUE", value))
    with pytest.raises(PipelineError, match=f"source: '{option}' is not a text .* put it in quotes"):
        read_pipeline(file)

    file.write_text(document.replace("VALUE", f'"{value}"'))
    assert read_pipeline(file).source[option] == value


def test_what_is_no_yaml_is_told_as_such(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    for content in ("{", "- a", "just text"):
        file.write_text(content)
        with pytest.raises(PipelineError):
            read_pipeline(file)


def test_a_python_file_needs_its_function(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def change(spark, source):\n    return source\n")

    with pytest.raises(PipelineError, match="no function transform"):
        read_pipeline(written(tmp_path, sql=None, python="a.py"))


def test_the_template_is_right_and_never_written_over_something(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"

    write_template(file)

    assert read_pipeline(file).source["stream"] == "orders-in"
    with pytest.raises(FileExistsError):
        write_template(file)


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.name)
def test_the_examples_are_right_and_say_how_they_are_run(file: Path) -> None:
    name = read_archive(file, {}).name if is_archive(file) else read_pipeline(file).name
    assert name == file.stem
    assert f"# penstock pipeline run examples/pipelines/{file.name}" in file.read_text()


def test_a_field_may_be_the_watermark(tmp_path: Path) -> None:
    pipeline = read_pipeline(written(tmp_path, watermark={"column": "value.at", "delay": "10 minutes"}))

    assert pipeline.watermark == ("value.at", "10 minutes")


def test_files_of_schemas_are_looked_for_beside_the_document_and_read_before_spark_starts(tmp_path: Path) -> None:
    source = {"stream": "a", "parsed": "avro", "parsedSchema": "@order.avsc"}
    with pytest.raises(PipelineError, match=r"source: option 'parsedSchema' is .*order.avsc.*cannot be read"):
        read_pipeline(written(tmp_path, source=source))
    (tmp_path / "order.avsc").write_text('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "null"}]}')
    with pytest.raises(PipelineError, match="source: Avro field 'a' is 'null'"):
        read_pipeline(written(tmp_path, source=source))

    (tmp_path / "order.avsc").write_text('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}')

    assert read_pipeline(written(tmp_path, source=source)).source["parsedSchema"] == f"@{tmp_path / 'order.avsc'}"
