"""`cluster.json`: a data directory belongs to one broker of one cluster."""

from pathlib import Path

import pytest

from penstock.model.errors import StorageError
from penstock.storage import DataDirectory
from penstock.storage.cluster_json import CLUSTER, belong_to


def test_a_directory_belongs_to_the_broker_that_used_it_first(tmp_path: Path) -> None:
    belong_to(tmp_path, "orders", "mq-0")
    belong_to(tmp_path, "orders", "mq-0")

    for cluster, broker in (("orders", "mq-1"), ("invoices", "mq-0")):
        with pytest.raises(StorageError, match="mq-0"):
            belong_to(tmp_path, cluster, broker)
    belong_to(tmp_path, "orders", "mq-0")


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"cluster": "orders"}'])
def test_a_file_that_is_not_whole_is_no_permission(tmp_path: Path, content: str) -> None:
    (tmp_path / CLUSTER).write_text(content)

    with pytest.raises(StorageError, match=r"cluster\.json"):
        belong_to(tmp_path, "orders", "mq-0")


def test_a_directory_that_belongs_to_a_broker_of_a_cluster_is_of_a_cluster(tmp_path: Path) -> None:
    with DataDirectory.open(tmp_path) as directory:
        assert not directory.is_of_cluster
        belong_to(tmp_path, "orders", "mq-0")
        assert directory.is_of_cluster
