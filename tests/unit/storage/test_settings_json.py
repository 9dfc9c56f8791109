"""`settings.json` of a virtual host."""

from pathlib import Path

import pytest

from penstock.metadata.effects import PersistDefaultQueueType
from penstock.model.errors import StorageError
from penstock.model.records import QueueKind
from penstock.storage.entries import default_queue_type_of
from penstock.storage.settings_json import write_settings_file


def test_a_default_queue_type_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    assert default_queue_type_of(path) == PersistDefaultQueueType(QueueKind.CLASSIC)

    write_settings_file(path, "quorum")

    assert default_queue_type_of(path) == PersistDefaultQueueType(QueueKind.QUORUM)
    path.write_text("{}")
    assert default_queue_type_of(path) == PersistDefaultQueueType(QueueKind.CLASSIC)


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ("[]", "must hold an object"),
        ('{"color": "blue"}', "must hold an object with 'default_queue_type' alone"),
        ('{"default_queue_type": 7}', "that is not a string"),
        ('{"default_queue_type": "odd"}', "it has the default queue type 'odd'"),
    ],
)
def test_a_file_that_cannot_be_understood_refuses_the_start(tmp_path: Path, content: str, rule: str) -> None:
    path = tmp_path / "settings.json"
    path.write_text(content)

    with pytest.raises(StorageError, match=rule):
        default_queue_type_of(path)
