"""JSON on the disk: whole or not at all, and an error that names the place in a broken file."""

import errno
import json

import pytest

from penstock.model.errors import NotWrittenError, StorageError
from penstock.storage import jsonfiles
from penstock.storage.jsonfiles import read_json, write_json


@pytest.mark.parametrize(
    ("content", "line", "column"),
    [
        (b'[\n  {"name": }\n]', 2, 12),
        (b"", 1, 1),
        (b'{"a": 1', 1, 8),
        (b'[\n"\xff"\n]', 2, 2),
        ('["größe", nein]'.encode(), 1, 11),
    ],
)
def test_a_broken_file_is_named_with_line_and_column(tmp_path, content, line, column):
    path = tmp_path / "users.json"
    path.write_bytes(content)

    with pytest.raises(StorageError, match=f"line {line} column {column}") as caught:
        read_json(path)

    assert str(path) in str(caught.value)
    assert path.read_bytes() == content


def test_a_file_that_nests_without_end_is_an_error(tmp_path):
    path = tmp_path / "users.json"
    path.write_bytes(b"[" * 200_000)

    with pytest.raises(StorageError, match="nests too deeply"):
        read_json(path)


@pytest.mark.parametrize(
    ("content", "line", "column"),
    [
        (r'["\ud800"]', 1, 3),
        ('[\n  "a\\uDC00"]', 2, 5),
        (r'["\ud83d\ude00\ud83d"]', 1, 15),
        (r'["\\\ud800"]', 1, 5),
        (r'{"\udbff": 1, "\udbff": 2}', 1, 3),
    ],
)
def test_half_a_surrogate_pair_is_an_error_with_its_place(tmp_path, content, line, column):
    # A restore of an archive with such a name failed with Python's words about a codec.
    path = tmp_path / "vhosts.json"
    path.write_text(content)

    with pytest.raises(StorageError, match=f"line {line} column {column}: this is half of a surrogate pair"):
        read_json(path)


def test_whole_surrogate_pairs_and_escaped_backslashes_are_read(tmp_path):
    path = tmp_path / "vhosts.json"
    path.write_text(r'["\ud83d\uDE00", "\\ud800"]')

    assert read_json(path) == ["\U0001f600", r"\ud800"]


def test_a_key_that_stands_twice_is_an_error(tmp_path):
    path = tmp_path / "users.json"
    path.write_text('[{"name": "a", "name": "b"}]')

    with pytest.raises(StorageError, match='"name" twice'):
        read_json(path)


def test_order_is_kept(tmp_path):
    path = tmp_path / "users.json"
    value = [{"z": 1, "a": 2, "m": {"y": 1, "b": 2}}]

    write_json(path, value)

    assert json.dumps(read_json(path)) == json.dumps(value)


def test_a_write_that_fails_leaves_the_old_content(tmp_path):
    path = tmp_path / "users.json"
    write_json(path, ["old"])
    (tmp_path / "users.json.new").mkdir()  # so that the temporary file cannot be made

    with pytest.raises(NotWrittenError, match="cannot be written"):
        write_json(path, ["new"])

    assert read_json(path) == ["old"]


def test_a_write_whose_name_may_be_lost_is_not_said_to_have_left_the_old_content(tmp_path, monkeypatch):
    path = tmp_path / "users.json"
    write_json(path, ["old"])

    def fail(_path):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(jsonfiles, "sync_directory", fail)
    with pytest.raises(StorageError, match="directory cannot be synced") as caught:
        write_json(path, ["new"])

    assert type(caught.value) is StorageError


def test_what_is_written_is_for_the_owner_alone(tmp_path):
    write_json(tmp_path / "users.json", [])

    assert (tmp_path / "users.json").stat().st_mode & 0o077 == 0


def test_an_interrupted_write_does_not_stand_in_the_way(tmp_path):
    path = tmp_path / "users.json"
    write_json(path, ["old"])
    (tmp_path / "users.json.new").write_text("half")

    write_json(path, ["new"])

    assert read_json(path) == ["new"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["users.json"]
