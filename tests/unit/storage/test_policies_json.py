"""Files of policies: a written one reads back, and errors name the place."""

import json

import pytest

from penstock.model.errors import StorageError
from penstock.storage.policies_json import PolicyRecord, read_policies, write_policies


def test_what_was_written_is_read(tmp_path):
    policies = [PolicyRecord("a", "^x", "queues", -3, {"durability": "disk"}), PolicyRecord("b", "", "all", 0, {})]
    write_policies(tmp_path / "policies.json", "/", policies)

    assert read_policies(tmp_path / "policies.json") == policies
    assert json.loads((tmp_path / "policies.json").read_text())[0]["apply-to"] == "queues"


def test_the_durability_of_a_policy_has_another_name_in_old_directories(tmp_path):
    """A directory with such a policy did not open."""
    definitions: list[dict[str, object]] = [
        {"level": "disk", "max-age": "1D"},
        {"max-age": "1D"},
        {"level": "os", "durability": "disk"},
    ]
    for definition in definitions:
        write_policies(tmp_path / "policies.json", "/", [PolicyRecord("a", "^x", "queues", 0, definition)])
        (found,) = read_policies(tmp_path / "policies.json")
        is_old = definition.keys() == {"level", "max-age"}
        assert found.definition == ({"durability": "disk", "max-age": "1D"} if is_old else definition)


def test_no_file_is_no_policy(tmp_path):
    assert read_policies(tmp_path / "policies.json") == []


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ([{"name": "p"}], r"\[0\]\.pattern: it must be a text"),
        ([{"name": "p", "pattern": "", "definition": []}], r"\[0\]\.definition: it must be an object"),
        ([{"name": "p", "pattern": "", "priority": "1", "definition": {}}], r"priority: it must be a whole number"),
        ([{"name": "p", "colour": ""}], r"colour: it is an unknown key"),
        ([{"name": "p"}, {"name": "p"}], "names 'p' twice"),
        ({}, "must hold a list"),
    ],
)
def test_what_is_wrong_is_named_by_its_place(tmp_path, content, place):
    (tmp_path / "policies.json").write_text(json.dumps(content))

    with pytest.raises(StorageError, match=place):
        read_policies(tmp_path / "policies.json")
