"""Passwords by every option, in a batch and a query that work and in those that fail: Spark shows none of them."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlparse
from uuid import uuid4

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import penstock
from support import Broker
from support.broker import free_ports

SECRET = "s3cret-w0rd"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def user(connection: penstock.Connection) -> Iterator[str]:
    name = f"loader-{uuid4().hex[:8]}"
    connection.admin.put_user(name, SECRET)
    connection.admin.set_permission(name, "/", configure=".*", write=".*", read=".*")
    yield name
    connection.admin.delete_user(name)


def credentials(broker: Broker, user: str, kind: str, folder: Path) -> dict[str, str]:
    host = broker.uri().rpartition("@")[2]
    (folder / "word").write_text(SECRET)
    return {
        "uri": {"uri": f"penstock://{user}:{SECRET}@{host}"},
        "several": {"uri": f"penstock://{user}:{SECRET}@127.0.0.1:{free_ports(1)[0]},{host}", "schema": "kafka"},
        "password": {"uri": f"penstock://{host}", "user": user, "password": SECRET},
        "passwordFile": {"uri": f"penstock://{user}@{host}", "passwordFile": str(folder / "word")},
    }[kind]


def files_with_the_secret(*folders: Path) -> list[str]:
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return [str(path) for path in files if SECRET.encode() in path.read_bytes()]


@pytest.mark.parametrize("kind", ["uri", "several", "password", "passwordFile"])
def test_spark_shows_no_password(
    spark: SparkSession,
    broker: Broker,
    connection: penstock.Connection,
    user: str,
    kind: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    source, sink = f"{user}-source", f"{user}-sink"
    connection.declare_stream(source)
    connection.declare_stream(sink)
    connection.stream(source).publish_many([b"1", b"2"])
    (tmp_path / "secret").mkdir()
    options = credentials(broker, user, kind, tmp_path / "secret")
    body = "value" if "schema" in options else "body"
    spark.sparkContext.setLogLevel("INFO")
    try:
        rows = spark.read.format("penstock").options(stream=source, **options).load().select(body)
        rows.explain(True)
        assert rows.count() == 2
        rows.write.format("penstock").mode("append").options(stream=sink, **options).save()
        read = {**options, "stream": source, "startingOffsets": "earliest"}
        query = (
            spark.readStream.format("penstock")
            .options(**read)
            .load()
            .select(body)
            .writeStream.format("penstock")
            .options(stream=sink, checkpointLocation=str(tmp_path / "checkpoint"), **options)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300)
        query.explain(True)
        progress = [each.json for each in query.recentProgress]
        errors = [failure(spark, {**options, **more}) for more in mistakes(options["uri"])]
    finally:
        spark.sparkContext.setLogLevel("ERROR")

    assert connection.stream(sink).info().message_count == 4
    printed = capfd.readouterr()
    shown = [printed.out, printed.err, *progress, *errors]
    assert [text for text in shown if SECRET in text] == []
    events = Path(urlparse(spark.conf.get("spark.eventLog.dir")).path)
    assert list(events.iterdir())
    assert files_with_the_secret(events, tmp_path / "checkpoint") == []


def mistakes(uri: str) -> list[dict[str, str]]:
    """Return options that are wrong, with the credentials among the right ones."""
    unreachable = uri.replace("127.0.0.1", "127.0.0.2")
    return [
        {"stream": "nowhere"},
        {"minPartitions": "0"},
        {"columns": "nothing"},
        {"kafka.bootstrap.servers": uri},
        {"uri": f"{uri.removesuffix('/')},other:x/"},
        {"uri": unreachable, "retrySeconds": "0"},
    ]


def failure(spark: SparkSession, options: dict[str, str]) -> str:
    with pytest.raises(PySparkException) as failed:
        spark.read.format("penstock").options(**{"stream": "a", **options}).load().count()
    return str(failed.value)
