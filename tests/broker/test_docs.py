"""The Python examples of the client's documentation, run as written, and the metrics that documents name."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from penstock_operator.links.counts import Counts
from support import Broker

DOCS = Path(__file__).parents[2] / "docs" / "clients.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", DOCS.read_text(), flags=re.MULTILINE | re.DOTALL)
URI = "penstock://guest:guest@127.0.0.1:5680/"


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=[f"example-{number}" for number in range(1, len(EXAMPLES) + 1)])
def test_an_example_of_the_documentation_runs(broker: Broker, example: str) -> None:
    assert URI in example

    example = example.replace(URI, broker.uri()).replace("grpc://127.0.0.1:5680", f"grpc://{broker.address}")
    subprocess.run([sys.executable, "-c", example], check=True, timeout=60)


def test_the_documentation_has_examples() -> None:
    assert len(EXAMPLES) >= 5


def test_every_metric_that_the_documents_name_is_there(broker: Broker) -> None:
    named = {
        name
        for document in DOCS.parent.glob("*.md")
        for name in re.findall(r"`(penstock_[a-z_]+)`", document.read_text())
    }

    # Some have no series until there are groups: then only their type is listed.
    pages = broker.scrape() + generate_latest(Counts().registry).decode()
    scraped = set(re.findall(r"^(?:# TYPE )?(penstock_[a-z_]+)", pages, flags=re.MULTILINE))

    # The Spark connector has metrics of its own.
    named = {name for name in named if not name.startswith("penstock_spark_")}
    assert len(named) >= 15
    assert named - scraped == set()
