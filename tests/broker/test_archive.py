"""Archives of streams: a pipeline moves messages to Parquet, and Flight reads across the archive and the log."""

import base64
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset
import pytest
from pyarrow import flight

import penstock
from penstock.archive.folder import folder_of
from penstock.pipeline.archive_document import Archiving
from penstock.pipeline.archiving import Archived, run_archive
from penstock.pipeline.errors import PipelineError
from support import Broker
from support.describer import Describer

pytestmark = pytest.mark.slow

# Segments of the minimum size, so that a few hundred messages fill several.
SETTINGS = "segment_bytes_min = 65536\nsegment_bytes_max = 65536\narchive_dir = {folder}\n"
BODY = b"x" * 900


def started(folder: Path, archive: Path) -> Broker:
    settings = folder / "penstock.toml"
    settings.write_text(SETTINGS.format(folder=json.dumps(str(archive))))
    return Broker(folder / "data", "--config", str(settings))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("archive")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, archive: Path) -> Iterator[Broker]:
    with started(tmp_path_factory.mktemp("broker"), archive) as broker:
        yield broker


@pytest.fixture
def connection(broker: Broker, vhost: str) -> Iterator[penstock.Connection]:
    with penstock.connect(broker.uri(vhost), native=False) as connection:
        yield connection


class Flight:
    """Reads the data of a descriptor."""

    def __init__(self, broker: Broker, vhost: str) -> None:
        self.client = flight.FlightClient(f"grpc://{broker.address}")
        self.vhost = vhost
        credentials = f"Basic {base64.b64encode(b'guest:guest').decode()}"
        self.options = flight.FlightCallOptions(headers=[(b"authorization", credentials.encode())])

    def describe(self, stream: str, **more: Any) -> flight.FlightInfo:
        command = json.dumps({"vhost": self.vhost, "stream": stream, **more})
        return self.client.get_flight_info(flight.FlightDescriptor.for_command(command), self.options)

    def read(self, stream: str, **more: Any) -> pa.Table:
        endpoints = self.describe(stream, **more).endpoints
        tables = [self.client.do_get(endpoint.ticket, self.options).read_all() for endpoint in endpoints]
        for table in tables:
            table.validate(full=True)
        return pa.concat_tables(tables)

    def get(self, partition: str, **more: Any) -> pa.Table:
        ticket = json.dumps({"vhost": self.vhost, "partition": partition, **more})
        return self.client.do_get(flight.Ticket(ticket), self.options).read_all()


@pytest.fixture
def arrow(broker: Broker, vhost: str) -> Iterator[Flight]:
    found = Flight(broker, vhost)
    yield found
    found.client.close()


def archived(broker: Broker, vhost: str, archive: Path, stream: str = "events", **more: Any) -> Archived:
    """Archive everything by default."""
    options = {"delete": True, "fail_on_data_loss": True, "file_bytes_max": 2**27, "older_than": None, **more}
    archiving = Archiving("test", broker.uri(vhost), stream, archive, pause_seconds=None, **options)
    return run_archive(archiving, lambda _: None)


def offsets(table: pa.Table) -> list[int]:
    found: list[int] = table["offset"].to_pylist()
    return found


def test_a_range_begins_in_the_archive_and_ends_in_the_log(
    broker: Broker, vhost: str, archive: Path, connection: penstock.Connection, arrow: Flight
) -> None:
    connection.declare_stream("events")
    events = connection.stream("events")
    properties = penstock.Properties(content_type="text/plain", reply_to="r", message_id="m")
    events.publish(b"first", key=b"k", properties=properties, headers={"word": "wörd", "n": 1})
    events.publish_many([b"%05d" % number + BODY for number in range(400)])
    before = arrow.read("events")

    done = archived(broker, vhost, archive)
    events.publish_many([b"%05d" % number + BODY for number in range(400, 500)])

    (standing,) = events.offsets()
    assert done.rows == 401
    assert standing.first > 200
    assert standing.archive is not None
    assert (standing.archive.first, standing.archive.next) == (1, 402)
    assert standing.archive.message_count == standing.first - 1
    union = arrow.read("events")
    assert union.slice(0, 401).equals(before)
    assert offsets(union) == list(range(1, 502))
    assert arrow.describe("events").total_records == 501


def test_partitions_are_archived_each_for_itself_and_read_in_parts(
    broker: Broker, vhost: str, archive: Path, connection: penstock.Connection, arrow: Flight
) -> None:
    connection.declare_stream("clicks", partitions=2)
    clicks = connection.stream("clicks")
    clicks.publish_keyed((b"%d" % number, b"%05d" % number + BODY) for number in range(600))
    archived(broker, vhost, archive, "clicks")
    clicks.publish_keyed((b"%d" % number, b"%05d" % number + BODY) for number in range(600, 700))

    whole = arrow.read("clicks")
    parts = arrow.read("clicks", endpoints_min=16)

    assert len(arrow.describe("clicks", endpoints_min=16).endpoints) >= 16
    assert sorted(body.as_py()[:5] for body in whole["body"]) == [b"%05d" % number for number in range(700)]
    assert parts.equals(whole)
    assert all(one.archive is not None for one in clicks.offsets())


def test_a_ticket_may_ask_for_some_columns_of_some_offsets(
    broker: Broker, vhost: str, archive: Path, connection: penstock.Connection, arrow: Flight
) -> None:
    connection.declare_stream("events")
    events = connection.stream("events")
    for start in range(0, 400, 100):
        events.publish_many([b"%05d" % number + BODY for number in range(start, start + 100)])
        archived(broker, vhost, archive, file_bytes_max=1024)

    (standing,) = events.offsets()
    first = standing.first
    assert first > 150
    assert offsets(arrow.get("events", **{"from": 50, "to": 130}, columns=["body", "offset"])) == list(range(50, 130))
    across = arrow.get("events", **{"from": first - 3, "to": first + 3}, columns=["offset"])
    assert across.schema.names == ["offset"]
    assert offsets(across) == list(range(first - 3, first + 3))
    assert arrow.get("events", columns=["partition", "key"]).num_rows == 400
    assert arrow.get("events", **{"from": 7, "to": 7}).num_rows == 0


def test_rows_are_filtered_in_archive_and_log_and_all_that_were_looked_at_are_counted(
    broker: Broker, vhost: str, archive: Path, connection: penstock.Connection, arrow: Flight
) -> None:
    connection.declare_stream("events")
    events = connection.stream("events")
    for start in range(0, 400, 100):
        for number in range(start, start + 100):
            key, headers = (b"k", {"unit": "C"}) if number % 50 == 0 else (b"other", None)
            events.publish(b"%05d" % number + BODY, key=key, headers=headers)
        archived(broker, vhost, archive, file_bytes_max=1024)

    for wanted in ({"key_is": "k"}, {"header_is": {"name": "unit", "value": "C"}}):
        ticket = flight.Ticket(json.dumps({"vhost": vhost, "partition": "events", "columns": ["offset"], **wanted}))
        chunks = list(arrow.client.do_get(ticket, arrow.options))
        reports = [json.loads(chunk.app_metadata.to_pybytes()) for chunk in chunks]

        found = [offset for chunk in chunks for offset in chunk.data["offset"].to_pylist()]
        assert found == [1 + number for number in range(0, 400, 50)]
        assert sum(report["seen"] for report in reports) == 400
        assert reports[-1]["next"] == 401
    (standing,) = events.offsets()
    assert standing.first > 150


def test_a_time_in_the_archive_is_found_there(
    broker: Broker, vhost: str, archive: Path, connection: penstock.Connection, arrow: Flight
) -> None:
    connection.declare_stream("events")
    events = connection.stream("events")
    for number in range(300):
        events.publish(b"%05d" % number + BODY)
    before = arrow.read("events")
    archived(broker, vhost, archive)

    (standing,) = events.offsets()
    for row in (0, 1, 57, standing.first - 2, standing.first - 1, 299):
        time = before["timestamp"][row].as_py()
        expected = next(place for place, each in enumerate(before["timestamp"]) if each.as_py() >= time)
        since = arrow.read("events", from_timestamp_ms=round(time.timestamp() * 1000))
        assert offsets(since) == list(range(expected + 1, 301))


def test_what_is_trimmed_while_it_is_read_comes_from_the_archive(
    broker: Broker, vhost: str, archive: Path, connection: penstock.Connection, arrow: Flight
) -> None:
    connection.declare_stream("events")
    events = connection.stream("events")
    for start in range(0, 40_000, 2_000):
        events.publish_many([b"%05d" % number + BODY for number in range(start, start + 2_000)])
    archived(broker, vhost, archive, delete=False)
    ticket = json.dumps({"vhost": vhost, "partition": "events", "from": 1})
    reader = arrow.client.do_get(flight.Ticket(ticket), arrow.options)
    found = reader.read_chunk().data["offset"].to_pylist()
    assert events.offsets()[0].first == 1

    archived(broker, vhost, archive)

    assert events.offsets()[0].first > 30_000
    for chunk in reader:
        found += chunk.data["offset"].to_pylist()
    assert found == list(range(1, 40_001))


def test_who_may_not_read_the_stream_may_not_read_its_archive(
    broker: Broker, vhost: str, archive: Path, connection: penstock.Connection
) -> None:
    connection.declare_stream("events")
    connection.stream("events").publish_many([BODY] * 300)
    archived(broker, vhost, archive)
    connection.admin.put_user("stranger", "secret")
    connection.admin.set_permission("stranger", vhost, configure="", write="", read="other.*")
    stranger = Flight(broker, vhost)
    credentials = f"Basic {base64.b64encode(b'stranger:secret').decode()}"
    stranger.options = flight.FlightCallOptions(headers=[(b"authorization", credentials.encode())])

    with pytest.raises(flight.FlightUnauthorizedError):
        stranger.get("events")


def test_a_stream_that_is_declared_again_has_nothing_of_the_earlier_ones_archive(
    broker: Broker, vhost: str, archive: Path, connection: penstock.Connection, arrow: Flight
) -> None:
    connection.declare_stream("events")
    connection.stream("events").publish_many([BODY] * 300)
    archived(broker, vhost, archive)
    connection.delete_stream("events")
    connection.declare_stream("events")
    connection.stream("events").publish_many([b"new"] * 5)

    assert arrow.read("events")["body"].to_pylist() == [b"new"] * 5
    with pytest.raises(PipelineError, match="earlier stream of this name"):
        archived(broker, vhost, archive)


def test_what_retention_took_before_it_was_archived_fails_the_run_or_is_passed_over(
    broker: Broker, vhost: str, archive: Path, connection: penstock.Connection, arrow: Flight
) -> None:
    connection.declare_stream("events")
    events = connection.stream("events")
    events.publish_many([BODY] * 100)
    archived(broker, vhost, archive, delete=False)
    events.publish_many([BODY] * 400)
    first = events.trim(450)
    assert first > 101

    with pytest.raises(
        PipelineError, match=f"offsets 101 to {first - 1} of 'events' were removed before they were archived"
    ):
        archived(broker, vhost, archive)
    archived(broker, vhost, archive, fail_on_data_loss=False)

    assert offsets(arrow.read("events")) == [*range(1, 101), *range(first, 501)]


def test_what_went_before_it_was_archived_lies_between_two_endpoints(
    broker: Broker, vhost: str, archive: Path, connection: penstock.Connection, arrow: Flight
) -> None:
    connection.declare_stream("events")
    events = connection.stream("events")
    events.publish_many([BODY] * 100)
    archived(broker, vhost, archive, delete=False)
    events.publish_many([BODY] * 400)
    first = events.trim(450)

    tickets = [json.loads(endpoint.ticket.ticket) for endpoint in arrow.describe("events").endpoints]

    assert [(ticket["from"], ticket["to"]) for ticket in tickets] == [(1, 101), (first, 501)]


def test_a_corrupt_archive_is_told_and_the_log_is_read_all_the_same(
    broker: Broker, vhost: str, archive: Path, connection: penstock.Connection, arrow: Flight
) -> None:
    connection.declare_stream("events")
    events = connection.stream("events")
    events.publish_many([BODY] * 300)
    archived(broker, vhost, archive)
    folder = folder_of(archive, vhost, "events")
    (file,) = folder.glob("date=*/*.parquet")
    content = bytearray(file.read_bytes())
    content[200] ^= 0xFF
    file.write_bytes(content)
    first = events.offsets()[0].first

    with pytest.raises(flight.FlightInternalError, match="cannot be read"):
        arrow.read("events")
    assert offsets(arrow.get("events", **{"from": first})) == list(range(first, 301))

    file.write_bytes(content[:-1])
    with pytest.raises(flight.FlightInternalError, match="the manifest says"):
        arrow.read("events")
    (folder / "_manifest.json").write_text("{")
    with pytest.raises(flight.FlightInternalError, match="not an archive manifest"):
        arrow.read("events")


def test_an_archive_that_is_not_mounted_is_told_to_those_that_begin_in_it(
    broker: Broker, vhost: str, archive: Path, connection: penstock.Connection, arrow: Flight
) -> None:
    connection.declare_stream("events")
    events = connection.stream("events")
    events.publish_many([BODY] * 300)
    archived(broker, vhost, archive)
    first = events.offsets()[0].first
    assert first > 100
    assert [(group.name, group.offset) for group in events.groups()] == [("amq.archive", 300)]
    folder_of(archive, vhost, "events").rename(archive / "elsewhere")
    describer = Describer(broker, vhost)

    found = f"messages of 'events' were archived up to offset 300, and {archive}.* has none of them; mount the archive"
    with pytest.raises(flight.FlightInternalError, match=found):
        arrow.read("events")
    with pytest.raises(flight.FlightInternalError, match=found):
        arrow.get("events", **{"from": 1})
    with pytest.raises(penstock.PenstockError, match=found):
        events.offsets()
    with pytest.raises(PipelineError, match=r"archived up to offset 300, and .* has them up to 0"):
        archived(broker, vhost, archive, delete=False)
    described = describer.one("events")
    assert (described["first"], described["runs"]) == (first, [[first, 301]])
    assert re.search(found, described["archive_error"])
    assert events.offsets(archive=False)[0].first == first
    assert offsets(arrow.get("events", **{"from": first})) == list(range(first, 301))
    assert offsets(arrow.get("events", **{"from": 1}, skip_unreadable=True)) == list(range(first, 301))

    events.delete_group("amq.archive")
    assert offsets(arrow.read("events")) == list(range(first, 301))
    assert "archive_error" not in describer.one("events")
    shutil.rmtree(folder_of(archive, vhost, "events"))
    (archive / "elsewhere").rename(folder_of(archive, vhost, "events"))
    archived(broker, vhost, archive)
    assert offsets(arrow.read("events")) == list(range(1, 301))


def test_a_file_that_is_missing_fails_its_readers_or_is_passed_over(
    broker: Broker, vhost: str, archive: Path, connection: penstock.Connection, arrow: Flight
) -> None:
    connection.declare_stream("events")
    events = connection.stream("events")
    for _ in range(3):
        events.publish_many([BODY] * 100)
        archived(broker, vhost, archive)
    (second,) = folder_of(archive, vhost, "events").glob("date=*/*-0000000000000101-*.parquet")
    second.unlink()

    with pytest.raises(flight.FlightInternalError, match="No such file or directory; restore a copy of it"):
        arrow.read("events")
    assert offsets(arrow.get("events", skip_unreadable=True)) == [*range(1, 101), *range(201, 301)]


def test_only_who_may_configure_a_stream_says_how_far_its_archive_is(
    broker: Broker, vhost: str, connection: penstock.Connection
) -> None:
    connection.declare_stream("events")
    connection.stream("events").publish_many([BODY] * 3)
    connection.admin.put_user("reader", "secret")
    connection.admin.set_permission("reader", vhost, configure="", write="", read=".*")

    with penstock.connect(broker.uri(vhost, "reader", "secret"), native=False) as readers:
        events = readers.stream("events")
        events.store("own", 2)
        for refused in (lambda: events.store("amq.archive", 2), lambda: events.delete_group("amq.archive")):
            with pytest.raises(penstock.AccessRefusedError, match="user 'reader' has no configure permission"):
                refused()
        with pytest.raises(penstock.AccessRefusedError, match=r"starts with 'amq.', which is reserved"):
            list(events.read("first", group="amq.archive", until="next"))


def test_the_folder_is_a_data_set_by_itself(
    broker: Broker, vhost: str, archive: Path, connection: penstock.Connection
) -> None:
    connection.declare_stream("clicks", partitions=2)
    connection.stream("clicks").publish_keyed((b"%d" % number, b"%d" % number) for number in range(500))
    archived(broker, vhost, archive, "clicks")
    folder = folder_of(archive, vhost, "clicks")

    found = pyarrow.dataset.dataset(folder, format="parquet", partitioning="hive").to_table()
    assert sorted(int(body) for body in found["body"].to_pylist()) == list(range(500))
    assert {str(date) for date in found["date"].to_pylist()} == {path.name[5:] for path in folder.glob("date=*")}
    rows = f"read_parquet('{folder}/*/*.parquet', hive_partitioning=true)"
    relation = duckdb.sql(f"SELECT count(DISTINCT body), count(*), min(date) FROM {rows}")
    assert relation is not None
    distinct, count, date = relation.fetchall()[0]
    assert (distinct, count) == (500, 500)
    assert str(date) == min(path.name[5:] for path in folder.glob("date=*"))
