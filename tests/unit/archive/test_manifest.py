"""The manifest: what it refuses, and which files it names for a range or a time."""

import json

import pytest

from penstock.archive import ArchivedFile, ArchivedPartition, ArchiveError, Live, Manifest
from penstock.archive.manifest import belongs, file_since, files_from, parse_manifest, runs_within

Runs = tuple[tuple[int, int], ...]


def file(first: int, end: int, times: tuple[int, int] = (0, 0), runs: Runs = ()) -> ArchivedFile:
    path = f"date=2026-01-31/events-{first}-{end - 1}.parquet"
    rows = sum(behind - begin for begin, behind in runs or [(first, end)])
    return ArchivedFile(path, first, end, rows, 1000, 10 * (end - first), *times, runs)


FILES = (
    file(1, 11, times=(100, 200)),
    file(11, 21, times=(190, 300), runs=((11, 14), (19, 21))),
    file(30, 40, times=(310, 400)),
)
MANIFEST = Manifest("/", "events", {"events": ArchivedPartition(7, FILES)})


def test_a_manifest_is_what_it_was_after_it_was_written():
    assert parse_manifest(MANIFEST.to_json(), "m") == MANIFEST
    assert MANIFEST.paths() == {each.path for each in FILES}
    assert ArchivedPartition(7).next == 1


@pytest.mark.parametrize(
    "change",
    [
        {"path": "../../etc/passwd"},
        {"path": "date=2026-01-31/../../x.parquet"},
        {"path": "date=2026-01-31/.hidden.parquet"},
        {"path": "/date=2026-01-31/x.parquet"},
        {"path": 7},
        {"first": 5},
        {"first": -1},
        {"next": 11},
        {"rows": 0},
        {"rows": 11},
        {"runs": [[11, 15]]},
        {"runs": [[11, 14], [13, 15]]},
        {"runs": [[19, 21], [11, 14]]},
        {"runs": [[10, 15]]},
        {"runs": [[17, 22]]},
        {"runs": [[11, 16, 17]]},
        {"runs": [11, 16]},
        {"runs": [[11, "16"]]},
        {"runs": [[11, 16], [16, 16]]},
        {"runs": []},
        {"size": True},
        {"timestamp_ms_min": 1.5},
        {"timestamp_ms_max": 2**63},
    ],
)
def test_a_file_that_cannot_be_is_refused(change):
    document = json.loads(MANIFEST.to_json())
    document["partitions"]["events"]["files"][1].update(change)

    with pytest.raises(ArchiveError, match="restore a copy of it"):
        parse_manifest(json.dumps(document).encode(), "m")


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"version": 2}', b"\xff", b"[" * 100_000, b'{"version": 3}'])
def test_what_is_no_manifest_is_refused(content):
    with pytest.raises(ArchiveError):
        parse_manifest(content, "m")


def test_an_archive_of_an_earlier_version_is_refused_with_the_way_out():
    document = json.loads(MANIFEST.to_json())

    with pytest.raises(ArchiveError, match=r"m has version 1, .* archive the stream anew"):
        parse_manifest(json.dumps(document | {"version": 1}).encode(), "m")


def test_the_files_of_a_range_are_those_that_hold_some_of_it():
    def found(start: int, end: int) -> list[int]:
        return [each.first for each in files_from(FILES, start, end)]

    assert found(1, 100) == [1, 11, 30]
    assert found(10, 12) == [1, 11]
    assert found(11, 12) == [11]
    assert found(21, 30) == []
    assert found(25, 31) == [30]
    assert found(40, 50) == []


def test_a_time_lies_in_the_first_file_that_reaches_it():
    assert [getattr(file_since(FILES, time), "first", None) for time in (0, 195, 200, 201, 400, 401)] == [
        1,
        1,
        1,
        11,
        30,
        None,
    ]


def test_offsets_that_have_messages_are_known_below_any_offset():
    assert runs_within(FILES, 11) == ([(1, 11)], 100)
    assert runs_within(FILES, 5) == ([(1, 5)], 40)
    assert runs_within(FILES, 21) == ([(1, 14), (19, 21)], 200)
    assert runs_within(FILES, 15) == ([(1, 14)], 140)
    assert runs_within(FILES, 100) == ([(1, 14), (19, 21), (30, 40)], 300)


def test_an_archive_belongs_to_the_partition_that_it_was_made_of():
    partition = ArchivedPartition(7, FILES)

    assert belongs(partition, 7, Live(5, 50, 150))
    assert belongs(partition, 7, Live(45, 50, 500))
    assert belongs(partition, 7, Live(40, 40, 0))
    assert not belongs(partition, 8, Live(45, 50, 500)), "another number"
    assert not belongs(partition, 7, Live(1, 3, 900)), "it has not come so far"
    assert not belongs(partition, 7, Live(5, 50, 900)), "the message has another time"
