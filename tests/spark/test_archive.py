"""A stream and its archive as one table: in a batch, and in a query that crosses from one to the other."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.pipeline.archive_document import Archiving
from penstock.pipeline.archiving import run_archive
from support import Broker

pytestmark = [pytest.mark.slow]
BODY = b"x" * 900


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("archive")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, archive: Path) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("archiving-broker")
    settings = folder / "penstock.toml"
    sizes = "segment_bytes_min = 65536\nsegment_bytes_max = 65536\n"
    settings.write_text(f"{sizes}archive_dir = {json.dumps(str(archive))}\n")
    with Broker(folder / "data", "--config", str(settings)) as broker:
        yield broker


@pytest.fixture(scope="module")
def connection(broker: Broker) -> Iterator[penstock.Connection]:
    with penstock.connect(broker.uri(), native=False) as connection:
        yield connection


def archived(broker: Broker, stream: str, archive: Path, delete: bool = True) -> None:
    run_archive(Archiving("test", broker.uri(), stream, archive, None, delete, True, 2**27, None), lambda _: None)


def numbers(start: int, end: int) -> Iterator[tuple[bytes, bytes]]:
    return ((b"%d" % number, b"%05d" % number + BODY) for number in range(start, end))


def reading(spark: SparkSession, broker: Broker, name: str, **options: str) -> DataFrame:
    return spark.read.format("penstock").options(uri=broker.uri(), stream=name, **options).load()


def found(rows: DataFrame) -> list[int]:
    return sorted(int(bytes(row.body)[:5]) for row in rows.select("body").collect())


def test_a_batch_reads_the_archive_and_the_log(
    spark: SparkSession, broker: Broker, archive: Path, connection: penstock.Connection
) -> None:
    connection.declare_stream("clicks", partitions=2)
    clicks = connection.stream("clicks")
    clicks.publish_keyed(numbers(0, 600))
    archived(broker, "clicks", archive)
    clicks.publish_keyed(numbers(600, 700))
    assert all(one.first > 100 for one in clicks.offsets())

    assert found(reading(spark, broker, "clicks")) == list(range(700))
    assert found(reading(spark, broker, "clicks", minPartitions="6")) == list(range(700))
    end = {one.partition: one.first + 5 for one in clicks.offsets()}
    rows = reading(spark, broker, "clicks", endingOffsets=json.dumps(end), columns="partition,offset").collect()
    assert sorted(tuple(row) for row in rows) == sorted(
        (partition, offset) for partition, stop in end.items() for offset in range(1, stop)
    )


def test_a_query_begins_in_the_archive_and_goes_on_in_the_log(
    spark: SparkSession, broker: Broker, archive: Path, connection: penstock.Connection, tmp_path: Path
) -> None:
    connection.declare_stream("orders")
    orders = connection.stream("orders")
    orders.publish_keyed(numbers(0, 300))
    archived(broker, "orders", archive)

    def run() -> None:
        source = spark.readStream.format("penstock").options(uri=broker.uri(), stream="orders")
        rows = source.options(startingOffsets="earliest", maxOffsetsPerTrigger="150").load()
        query = (
            rows.select("body", "offset")
            .writeStream.format("parquet")
            .options(path=str(tmp_path / "out"), checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(100)

    run()
    assert found(spark.read.parquet(str(tmp_path / "out"))) == list(range(300))
    orders.publish_keyed(numbers(300, 500))
    # Rows that the query has not read yet move to the archive meanwhile.
    archived(broker, "orders", archive)
    orders.publish_keyed(numbers(500, 520))
    assert orders.offsets()[0].first > 301
    run()

    assert found(spark.read.parquet(str(tmp_path / "out"))) == list(range(520))


def test_what_went_before_it_was_archived_is_a_loss(
    spark: SparkSession, broker: Broker, archive: Path, connection: penstock.Connection
) -> None:
    connection.declare_stream("lost")
    lost = connection.stream("lost")
    lost.publish_keyed(numbers(0, 100))
    archived(broker, "lost", archive, delete=False)
    lost.publish_keyed(numbers(100, 400))
    first = lost.trim(350)
    assert first > 101

    with pytest.raises(PySparkException, match="retention removed"):
        reading(spark, broker, "lost").collect()
    rest = [*range(100), *range(first - 1, 400)]
    assert found(reading(spark, broker, "lost", failOnDataLoss="false")) == rest
