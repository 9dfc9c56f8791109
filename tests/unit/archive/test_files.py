"""Files of an archive: written and read again, a row group at a time."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.archive import ArchiveError, writing
from penstock.archive.columns import SCHEMA
from penstock.archive.filtering import RowFilter
from penstock.archive.reading import Wanted, offset_since, read_piece
from penstock.archive.writing import FileWriter
from support.archive_fakes import rows_of

MESSAGES = [(offset, 1_000 + 10 * offset) for offset in [*range(1, 51), *range(60, 101)]]


@pytest.fixture
def file(tmp_path, request):
    writer = FileWriter(tmp_path, "1970-01-01", "events", 1)
    for start in range(0, len(MESSAGES), 10):
        writer.write(rows_of("events", MESSAGES[start : start + 10]))
        writer._write_group()
    return writer.finish(120, lambda _: None)


def read(folder, file, start, end, columns=None):
    """Return all pieces of a range, and where each ended."""
    schema = SCHEMA if columns is None else pa.schema([SCHEMA.field(name) for name in columns])
    batches, ends, at = [], [], start
    while at < end and at < file.next:
        messages = read_piece(folder, file, Wanted(at, end, columns))
        batches += [pa.ipc.read_record_batch(pa.py_buffer(message.content), schema) for message in messages]
        at = messages[-1].next
        ends.append(at)
    return pa.Table.from_batches(batches, schema), ends


def test_a_file_holds_what_was_written_and_is_named_when_it_is_whole(tmp_path, file):
    assert file.path == "date=1970-01-01/events-0000000000000001-0000000000000119.parquet"
    assert [path.name for path in tmp_path.glob("date=*/*")] == [file.path.partition("/")[2]]
    assert (file.first, file.next, file.rows) == (1, 120, 91)
    assert (file.timestamp_ms_min, file.timestamp_ms_max) == (1_010, 2_000)
    assert file.bytes == sum(len(str(offset)) for offset, _ in MESSAGES)
    assert file.size == (tmp_path / file.path).stat().st_size
    rows, ends = read(tmp_path, file, 1, 1_000)
    assert rows.equals(pa.Table.from_batches([rows_of("events", MESSAGES)]))
    assert ends[-1] == 120
    assert len(ends) == 10


@pytest.mark.parametrize(
    ("start", "end"), [(1, 2), (5, 6), (10, 11), (49, 62), (51, 60), (100, 120), (101, 120), (7, 93)]
)
def test_a_range_is_read_to_the_row(tmp_path, file, start, end):
    rows, ends = read(tmp_path, file, start, end, ["body", "offset"])

    assert rows["offset"].to_pylist() == [offset for offset, _ in MESSAGES if start <= offset < end]
    assert rows.schema.names == ["body", "offset"]
    assert ends[-1] == end


@pytest.mark.parametrize(
    ("wanted", "offsets"),
    [
        (RowFilter(key=b"k"), [1, 3]),
        (RowFilter(routing_key=b"r"), [2, 3]),
        (RowFilter(header=(b"a", b"x")), [1, 4]),
        (RowFilter(b"k", b"r"), [3]),
        (RowFilter(b"k", header=(b"a", b"y")), []),
    ],
)
def test_rows_that_are_not_asked_for_are_counted_and_left_out(tmp_path, wanted, offsets):
    rows = rows_of("e", [(number, 0) for number in range(1, 5)])
    headers = [[("a", "z"), ("a", "x")], [], [("b", "x"), ("a", None)], [("a", "x"), ("a", "x")]]
    for name, values in (("key", [b"k", None, b"k", b"kk"]), ("routing_key", list("srrs")), ("headers", headers)):
        field = SCHEMA.field(name)
        rows = rows.set_column(SCHEMA.get_field_index(name), field, pa.array(values, field.type))
    writer = FileWriter(tmp_path, "1970-01-01", "e", 1)
    writer.write(rows)
    file = writer.finish(6, lambda _: None)

    (message,) = read_piece(tmp_path, file, Wanted(1, 5, ["offset"], wanted))

    assert (message.next, message.seen) == (5, 4)
    schema = pa.schema([SCHEMA.field("offset")])
    assert pa.ipc.read_record_batch(pa.py_buffer(message.content), schema)["offset"].to_pylist() == offsets


def test_a_time_is_found_to_the_row(tmp_path, file):
    found = [offset_since(tmp_path, file, time) for time in (0, 1_010, 1_011, 1_505, 2_000, 2_001)]

    assert found == [1, 1, 2, 60, 100, None]


def test_large_bodies_come_in_messages_of_their_own(tmp_path):
    rows = rows_of("e", [(number, 0) for number in range(1, 7)])
    rows = rows.set_column(5, SCHEMA.field("body"), pa.array([bytes(writing.GROUP_BYTES // 6)] * 6, pa.binary()))
    writer = FileWriter(tmp_path, "1970-01-01", "e", 1)
    writer.write(rows)
    file = writer.finish(7, lambda _: None)

    messages = read_piece(tmp_path, file, Wanted(1, 7))

    assert [(message.next, message.seen) for message in messages] == [(end, 1) for end in range(2, 8)]


def test_a_file_that_is_not_as_it_was_is_refused(tmp_path, file):
    path = tmp_path / file.path
    content = path.read_bytes()
    (tmp_path / "other.parquet").touch()
    pq.write_table(pa.table({"offset": [1]}), path)
    with pytest.raises(ArchiveError, match="the manifest says"):
        read_piece(tmp_path, file, Wanted(1, 2))

    path.write_bytes(b"x" * len(content))
    with pytest.raises(ArchiveError, match="cannot be read"):
        read_piece(tmp_path, file, Wanted(1, 2))

    path.unlink()
    with pytest.raises(ArchiveError, match="No such file"):
        read_piece(tmp_path, file, Wanted(1, 2))


def test_columns_of_another_kind_are_refused(tmp_path, file):
    path = tmp_path / file.path
    table = pq.read_table(path)
    pq.write_table(table.set_column(0, "offset", table["offset"].cast(pa.int32())), path)
    changed = type(file)(**{**{name: getattr(file, name) for name in file.__slots__}, "size": path.stat().st_size})

    with pytest.raises(ArchiveError, match="does not have the columns"):
        read_piece(tmp_path, changed, Wanted(1, 2))
