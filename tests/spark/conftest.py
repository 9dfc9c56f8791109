"""A minimal session for all tests: it takes seconds to start and half a gigabyte.

Java and PySpark must be installed; `make test-spark` installs PySpark.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.spark.interpreter import write_interpreter
from support import Broker
from support.fake_flight import FakeFlight

ROOT = Path(__file__).resolve().parents[2]
# Most of these JVMs live for seconds: the second compiler and threads that collect garbage cost more than they save.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture
def server() -> Iterator[FakeFlight]:
    with FakeFlight() as server:
        yield server


@pytest.fixture(scope="session")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a value for PYSPARK_PYTHON that starts in a third of the time, which a busy machine needs."""
    return write_interpreter(tmp_path_factory.mktemp("python"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, interpreter: str) -> Iterator[SparkSession]:
    """Its workers find the data source as a user's do: on the path of their Python."""
    folder = tmp_path_factory.mktemp("spark")
    events = folder / "events"
    events.mkdir()
    os.environ["PYSPARK_PYTHON"] = interpreter
    os.environ["PYTHONPATH"] = str(ROOT / "broker")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("penstock-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "Asia/Tokyo")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={folder}")
        # The event log has everything that the user interface shows.
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.rolling.enabled", "false")
        .config("spark.eventLog.dir", events.as_uri())
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def connection(broker: Broker) -> Iterator[penstock.Connection]:
    with penstock.connect(broker.uri(), native=False) as connection:
        yield connection
