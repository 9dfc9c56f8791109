"""The commands of docs/spark.md for a cluster, run as written with a Python that has no package of ours.

The cluster is one of two workers on this machine, the server of Spark Connect a local one. A job finds the connector or
registers it: SPARK_SEED, which is printed, chooses which, and SPARK_JOBS=2 runs both.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

import penstock
from support import Broker
from support.broker import free_ports
from support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
DOCUMENT = (ROOT / "docs" / "spark.md").read_text().partition("\n## Deployment\n")[2].partition("\n## ")[0]
# Installed here already; a test downloads nothing.
LIBRARIES = ("grpc", "google", "pyarrow", "pandas", "numpy", "numpy.libs", "pytz", "dateutil", "tzdata", "fastavro")
MODULES = ("six.py", "typing_extensions.py")
LEFT_OUT = re.compile(r"/(tests|include|__pycache__)/")
JOB = """
import sys

from pyspark.sql import SparkSession

uri, registers = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
if registers == "register":
    from penstock.spark.source import PenstockSource

    spark.dataSource.register(PenstockSource)
options = {"uri": uri, "stream": "orders", "startingOffsets": "earliest"}
query = (
    spark.readStream.format("penstock").options(**options).load().select("key", "body")
    .writeStream.format("penstock").options(uri=uri, stream="lake", checkpointLocation=f"checkpoint-{registers}")
    .trigger(availableNow=True).start()
)
query.awaitTermination()
workers = spark.sparkContext.parallelize(range(4), 4).map(lambda _: __import__("penstock").__file__).collect()
print("workers have", *sorted({path.partition("penstock_client")[1] for path in workers}))
print("in the lake:", spark.read.format("penstock").options(uri=uri, stream="lake").load().count())
"""
CLIENT = """
import sys

from pyspark.sql import SparkSession

uri, remote = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
print("orders:", spark.read.format("penstock").options(uri=uri, stream="orders").load().count())
"""
SEED = int(os.environ.get("SPARK_SEED") or random.SystemRandom().randrange(1_000_000))
JOBS = int(os.environ.get("SPARK_JOBS", "1"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with what the document's first commands make there."""
    folder = tmp_path_factory.mktemp("deployed")
    subprocess.run([ROOT / "tools" / "build_client.sh", folder / "dist"], check=True, capture_output=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    shutil.copy(wheel, folder / "penstock_client.zip")
    site = Path(sysconfig.get_path("purelib"))
    with zipfile.ZipFile(folder / "packages.zip", "w") as packages:
        for file in [
            *(site / name for name in MODULES),
            *(each for name in LIBRARIES for each in (site / name).rglob("*")),
        ]:
            if file.is_file() and not LEFT_OUT.search(file.as_posix()):
                packages.write(file, file.relative_to(site))
    with zipfile.ZipFile(folder / "packages.zip") as packages:
        packages.extractall(folder / "packages")
    (folder / "job.py").write_text(JOB)
    (folder / "client.py").write_text(CLIENT)
    return folder


@pytest.fixture(scope="module")
def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a machine of a cluster: a Python without packages, and Spark."""
    venv.create(folder / "python", with_pip=False, symlinks=True)
    python = str(folder / "python" / "bin" / "python")
    left_out = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    path = f"{SPARK_HOME / 'bin'}:{SPARK_HOME / 'sbin'}:{kept['PATH']}"
    return {**kept, "PATH": path, "SPARK_HOME": str(SPARK_HOME), "PYSPARK_PYTHON": python}


@pytest.fixture
def orders(broker: Broker, connection: penstock.Connection) -> Iterator[str]:
    for name in ("orders", "lake"):
        connection.declare_stream(name)
    connection.stream("orders").publish_many([b"%d" % number for number in range(20)])
    yield broker.uri()
    for name in ("orders", "lake"):
        connection.delete_stream(name)


def command(beginning: str, **changes: str) -> str:
    """Return the document's command that begins so, with other values for this machine."""
    found = re.findall(rf"^{re.escape(beginning)}(?:.*\\\n)*.*$", DOCUMENT, re.MULTILINE)
    assert len(found) == 1, found
    text = str(found[0])
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return text


def run(text: str, folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-c", text], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=400
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-6_000:]
    return done.stdout


# Several workers must collect the same tests, so each test draws its way when it runs.
@pytest.mark.parametrize("job", range(JOBS))
def test_spark_submit_brings_the_connector_and_its_libraries_to_a_cluster(
    folder: Path, environment: dict[str, str], orders: str, job: int
) -> None:
    registers = random.Random(SEED).sample(["found", "register"], JOBS)[job]
    sizes = "--conf spark.executor.memory=512m --driver-memory 512m --conf spark.ui.enabled=false"
    small = f"--master local-cluster[2,1,512] {sizes}"
    text = command(
        "PYTHONPATH=$PWD/packages:$PWD/penstock_client.zip spark-submit",
        **{"--master spark://cluster:7077": small, "job.py": f"job.py {orders} {registers}"},
    )

    output = run(text, folder, environment)
    print(f"\nSPARK_SEED={SEED}: {registers}")

    assert "workers have penstock_client" in output
    assert "in the lake: 20" in output


def test_a_python_without_the_packages_has_no_connector(folder: Path, environment: dict[str, str], orders: str) -> None:
    """The other tests would pass for the wrong reason otherwise."""
    python = environment["PYSPARK_PYTHON"]
    for name in ("penstock", "pyarrow", "grpc"):
        done = subprocess.run([python, "-c", f"import {name}"], env=environment, check=False, capture_output=True)
        assert b"ModuleNotFoundError" in done.stderr


def test_clients_of_spark_connect_need_nothing_of_ours(folder: Path, environment: dict[str, str], orders: str) -> None:
    (port,) = free_ports(1)
    settings = f"--master local[2] --driver-memory 512m --conf spark.connect.grpc.binding.port={port}"
    text = command("PYTHONPATH=$PWD/packages:$PWD/penstock_client.zip start-connect-server.sh")
    started = {**environment, "SPARK_LOG_DIR": str(folder / "logs"), "SPARK_PID_DIR": str(folder)}
    run(f"{text} {settings} --conf spark.ui.enabled=false", folder, started)
    try:
        eventually(lambda: any("started" in log.read_text() for log in (folder / "logs").glob("*.out")), True, 120)
        # It has PySpark with the libraries of Spark Connect.
        client = subprocess.run(
            [sys.executable, "client.py", orders, f"sc://127.0.0.1:{port}"],
            cwd=folder,
            env={name: value for name, value in environment.items() if name != "SPARK_HOME"},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert "orders: 20" in client.stdout, client.stderr[-4_000:]
    finally:
        (pid_file,) = folder.glob("*.pid")
        os.kill(int(pid_file.read_text()), signal.SIGTERM)
