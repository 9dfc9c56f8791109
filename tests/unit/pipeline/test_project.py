"""Projects of Spark Declarative Pipelines: written from documents, and read with errors by place."""

import ast
import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from penstock.pipeline import PipelineError, read_pipeline, read_project, write_project, write_template_project
from penstock.pipeline.declared import progress_of
from penstock.pipeline.project import as_stream, project_files

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "pipelines"


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("SELECT * FROM source", "SELECT * FROM STREAM source"),
        ("SELECT source.offset FROM source s", "SELECT source.offset FROM STREAM source s"),
        ("select 1 from rooms join Source on a = b", "select 1 from rooms join STREAM Source on a = b"),
        ("SELECT * FROM STREAM source", "SELECT * FROM STREAM source"),
        ("SELECT * FROM STREAM(source)", "SELECT * FROM STREAM(source)"),
        ("SELECT 'from source' FROM source -- from source", "SELECT 'from source' FROM STREAM source -- from source"),
        ("SELECT 1 FROM (SELECT * FROM source)", "SELECT 1 FROM (SELECT * FROM STREAM source)"),
    ],
)
def test_a_stream_is_called_one_where_it_is_read_and_nowhere_else(query: str, wanted: str) -> None:
    assert as_stream(query, "source") == wanted


def test_a_query_that_reads_the_stream_nowhere_is_refused() -> None:
    with pytest.raises(PipelineError, match="neither by FROM nor by JOIN"):
        as_stream("SELECT * FROM a, source", "source")


@pytest.mark.parametrize("name", ["warm-rooms", "shop-traffic", "degrees-by-hour"])
def test_the_triggered_examples_are_projects_whose_files_are_right(name: str, tmp_path: Path) -> None:
    write_project(read_pipeline(EXAMPLES / f"{name}.yaml"), tmp_path / "project")

    project = read_project(tmp_path / "project")
    assert project.name == name
    for file in (tmp_path / "project" / "transformations").glob("*.py"):
        assert ast.get_docstring(ast.parse(file.read_text()))
    specification = yaml.safe_load(project.specification.read_text())
    assert specification["configuration"] == {"spark.sql.shuffle.partitions": "2"}
    assert specification["storage"].startswith("file:///")
    with pytest.raises(FileExistsError):
        write_project(read_pipeline(EXAMPLES / f"{name}.yaml"), tmp_path / "project")


def test_source_tables_and_sinks_are_carried_over(tmp_path: Path) -> None:
    files = project_files(read_pipeline(EXAMPLES / "shop-traffic.yaml"), tmp_path)

    assert "'stream': 'requests'" in files["transformations/source.py"]
    assert ".withColumn('at', rows['value.at']).withWatermark('at', '10 minutes')" in files["transformations/source.py"]
    assert "def sections()" in files["transformations/source.py"]
    assert files["transformations/result.sql"].startswith("CREATE TEMPORARY VIEW result AS\n")
    assert "FROM STREAM source" in files["transformations/result.sql"]
    assert "FROM STREAM result" in files["transformations/sinks.py"]
    assert files["transformations/sinks.py"].count("dp.create_sink(") == 2


def test_what_spark_s_own_pipelines_cannot_do_is_refused(tmp_path: Path) -> None:
    pipeline = read_pipeline(EXAMPLES / "warm-rooms.yaml")

    with pytest.raises(PipelineError, match="only triggered ones"):
        project_files(replace(pipeline, mode="continuous"), tmp_path)
    with pytest.raises(PipelineError, match=r"sinks\[0\]: Spark's own pipelines cannot write jdbc"):
        project_files(replace(pipeline, sinks=(replace(pipeline.sinks[0], format="jdbc"),)), tmp_path)


def test_the_template_of_a_project_is_right_and_keeps_its_place_to_itself(tmp_path: Path) -> None:
    write_template_project(tmp_path / "orders")

    specification = yaml.safe_load(read_project(tmp_path / "orders").specification.read_text())
    assert specification["name"] == "orders"
    assert specification["storage"] == (tmp_path / "orders" / "storage" / "declared").as_uri()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", "is not YAML"),
        ("storage: file:///a", "lacks 'name'"),
        ("name: a", "lacks 'storage'"),
        ("name: a\nstorage: b", "Spark takes absolute URIs only"),
        ("name: a\nstorage: file:///b\nsource: c", "the specification has 'source'"),
        ("name: a\nstorage: file:///b\nlibraries: [{glob: {include: gone.py}}]", "there is no .*gone.py"),
    ],
)
def test_what_is_wrong_with_a_specification_is_told(tmp_path: Path, content: str, text: str) -> None:
    (tmp_path / "spark-pipeline.yml").write_text(content)

    with pytest.raises(PipelineError, match=text):
        read_project(tmp_path)


def test_a_folder_without_a_specification_is_no_project(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="has neither of"):
        read_project(tmp_path)


def test_rows_and_batches_are_read_off_the_log_of_events() -> None:
    kind = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"
    first = {"Event": kind, "progress": {"name": "a", "numInputRows": 3}}
    second = {"Event": kind, "progress": json.dumps({"name": "a", "sources": [{"numInputRows": 2}]})}
    idle = {"Event": kind, "progress": {"name": "b", "numInputRows": 0}}

    lines = [json.dumps(each) for each in ({"Event": "SparkListenerJobEnd"}, first, second, idle)]

    assert progress_of(lines) == {"a": (5, 2), "b": (0, 0)}
