"""Walking a range visits every offset once, in order, whatever files a manifest has and wherever the log begins."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.archive import ArchivedFile, ArchivedPartition, Manifest
from penstock.archive.manifest import files_from, parse_manifest, runs_of, runs_within
from penstock.client.records import PartitionOffsets
from penstock.pipeline.archiving import due
from penstock.spark.described import Partition, Runs


@st.composite
def files(draw: st.DrawFn) -> tuple[ArchivedFile, ...]:
    at, found = draw(st.integers(1, 50)), []
    for _ in range(draw(st.integers(1, 8))):
        first = at + draw(st.sampled_from([0, 0, 0, 3]))
        at = first + draw(st.integers(1, 30))
        path = f"date=2026-01-31/e-{first}-{at - 1}.parquet"
        runs = draw(st.sampled_from([(), *cut(first, at)]))
        rows = sum(behind - begin for begin, behind in runs or [(first, at)])
        found.append(ArchivedFile(path, first, at, rows, 100, at - first, 0, 1_000, runs))
    return tuple(found)


def cut(first: int, end: int) -> list[tuple[tuple[int, int], ...]]:
    """Ranges with a gap of one offset in between."""
    return [((first, at), (at + 1, end)) for at in range(first + 1, end - 1)]


@given(files(), st.integers(1, 400), st.integers(0, 400), st.data())
def test_the_archive_and_the_log_together_answer_every_offset_once(archived, live_first, width, data):
    partition = ArchivedPartition(1, archived)
    live_first = min(live_first, partition.next)
    live = range(live_first, max(partition.next, live_first + width))
    start = data.draw(st.integers(1, 400))
    end = data.draw(st.integers(start, 500))

    found: list[int] = []
    at = start
    while at < end:
        # As a reader does: offsets in the log come from there, the rest from the archive.
        pieces = files_from(archived, at, min(end, live_first)) if at < live_first else ()
        if not pieces:
            found += range(max(at, live_first), min(end, live.stop))
            break
        behind = min(end, live_first, pieces[0].next)
        found += range(max(at, pieces[0].first), behind)
        at = behind

    there = {offset for file in archived for offset in range(file.first, file.next)} | set(live)
    assert found == [offset for offset in range(start, end) if offset in there]


@given(files(), st.integers(1, 400), st.integers(0, 100))
def test_what_is_due_follows_the_archive_without_gap_or_overlap(archived, live_first, width):
    partition = ArchivedPartition(1, archived)
    live_first = min(live_first, partition.next)
    end = max(partition.next, live_first) + width
    there = Partition("e", "e", 0, "1", live_first, end, end - 1, -1, Runs([(live_first, end)]))
    start, stop = due(partition, PartitionOffsets("e", live_first, end, 0, 0, 500, 0, None, 1), there, True)

    assert (start, stop) == (partition.next, end)


@given(files(), st.integers(1, 400))
def test_offsets_below_one_that_have_messages_are_those_of_the_files(archived, end):
    runs, _ = runs_within(archived, end)

    found = [offset for first, behind in runs for offset in range(first, behind)]
    there = [offset for file in archived for first, behind in runs_of(file) for offset in range(first, behind)]
    assert found == [offset for offset in there if offset < end]


@given(files())
def test_a_manifest_survives_its_file(archived):
    manifest = Manifest("/", "e", {"e": ArchivedPartition(1, archived)})

    assert parse_manifest(manifest.to_json(), "m") == manifest
