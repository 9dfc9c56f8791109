"""The folder: users' names in paths, the manifest's replacement, leftovers, one writer at a time."""

import pytest

from penstock.archive import ArchivedFile, ArchivedPartition, ArchiveError, Manifest
from penstock.archive.folder import folder_of, hold, read_manifest, remove_strays, write_manifest

FILE = ArchivedFile("date=2026-01-31/e-1-9.parquet", 1, 10, 9, 1, 1, 0, 0)
MANIFEST = Manifest("/", "e", {"e": ArchivedPartition(1, (FILE,))})


@pytest.mark.parametrize("name", ["..", ".", "a/b", "../../etc", "\0", "_delta_log", ".hidden", "ä" * 10, "a b", "%2e"])
def test_a_name_is_one_plain_folder_whatever_it_holds(tmp_path, name):
    folder = folder_of(tmp_path, name, name)

    assert folder.resolve().parent.parent == tmp_path.resolve()
    assert folder.name[0] not in "._"
    folder.mkdir(parents=True)


def test_names_that_differ_have_folders_that_differ(tmp_path):
    names = ["a", "A", "a/", "a%2F", "%61", ".a", "_a", "%2Ea"]

    assert len({folder_of(tmp_path, "/", name) for name in names}) == len(names)
    with pytest.raises(ArchiveError, match="at most"):
        folder_of(tmp_path, "/", "ä" * 100)


def test_a_manifest_is_read_as_it_was_written_and_only_for_its_stream(tmp_path):
    assert read_manifest(tmp_path, "/", "e") == Manifest("/", "e")
    steps: list[str] = []

    write_manifest(tmp_path, MANIFEST, steps.append)

    assert steps == ["manifest written", "manifest replaced"]
    assert read_manifest(tmp_path, "/", "e") == MANIFEST
    with pytest.raises(ArchiveError, match="not of 'other'"):
        read_manifest(tmp_path, "/", "other")


def test_what_the_manifest_does_not_name_is_removed(tmp_path):
    day = tmp_path / "date=2026-01-31"
    day.mkdir()
    for name in ("e-1-9.parquet", "e-10-19.parquet", ".unfinished-e"):
        (day / name).touch()
    (tmp_path / ".unfinished_manifest.json").touch()
    (tmp_path / "notes.txt").touch()

    removed = remove_strays(tmp_path, MANIFEST)

    assert {path.name for path in removed} == {"e-10-19.parquet", ".unfinished-e", ".unfinished_manifest.json"}
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"e-1-9.parquet", "notes.txt"}


def test_one_process_at_a_time_writes_an_archive(tmp_path):
    with hold(tmp_path / "new"), pytest.raises(ArchiveError, match="another process writes"), hold(tmp_path / "new"):
        pass
    with hold(tmp_path / "new"):
        pass
