"""`penstock stream` over a broker in memory."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.main import app
from penstock.cli.output import counted
from penstock.client.sync import Connection
from penstock.v1 import staging_pb2 as staging
from penstock.v1 import streams_pb2 as wire
from support.fake_reader import FakeReader
from support.fake_transport import FakeBroker, FakeTransport, connect_to

Invoke = Callable[..., Result]


class FilledTransport(FakeTransport):
    """Its readers have three messages, and are then at their end."""

    def reader(self, options: Any) -> FakeReader:
        reader = super().reader(options)
        reader.put(1, 2, 3)
        reader.finish()
        return reader


@pytest.fixture
def transports() -> list[FilledTransport]:
    return []


@pytest.fixture
def broker() -> FakeBroker:
    broker = FakeBroker()
    stream = wire.Stream(name="orders", partitions=["orders"], message_count=3, bytes=2_000)
    stream.arguments["x-max-age"].string_value = "7D"
    offsets = wire.PartitionOffsets(partition="orders", first=1, next=4, message_count=3, first_timestamp_ms=1_500)
    stage = staging.StageInfo(name="nightly", routing_key="orders", row_count=9, last_batch=4, last_staged_ms=1_500)
    group = wire.Group(name="billing", partition="orders", offset=2, lag=1)
    broker.publish = lambda *_: (0, "")  # type: ignore[method-assign]
    for name, answer in (
        ("ListStreams", wire.ListStreamsResponse(streams=[stream])),
        ("DeclareStream", wire.DeclareStreamResponse(partitions=["clicks-0", "clicks-1"])),
        ("DeleteStream", wire.DeleteStreamResponse(dropped_count=7)),
        ("GetOffsets", wire.GetOffsetsResponse(partitions=[offsets])),
        ("ListGroups", wire.ListGroupsResponse(groups=[group])),
        ("DeleteGroup", wire.DeleteGroupResponse(deleted=False)),
        ("GetProducer", wire.GetProducerResponse()),
        ("DeleteProducer", wire.DeleteProducerResponse(deleted=False)),
        ("ListStages", staging.ListStagesResponse(stages=[stage])),
        ("DeleteStage", staging.DeleteStageResponse(dropped_count=9)),
    ):
        broker.answers[name] = lambda _, answer=answer: answer.SerializeToString()  # type: ignore[misc]
    broker.answers["ListProducers"] = producers_of
    return broker


def producers_of(request: bytes) -> bytes:
    """Return two pages of one, and the end."""
    names = ["monday", "tuesday"]
    after = wire.ListProducersRequest.FromString(request).after
    page = [wire.ProducerInfo(name=name, sequence=7) for name in names if name > after][:1]
    return wire.ListProducersResponse(producers=page).SerializeToString()


@pytest.fixture
def invoke(broker: FakeBroker, transports: list[FilledTransport]) -> Invoke:
    def connect(uri: str, **options: Any) -> Connection:
        transports.append(FilledTransport(broker))
        return connect_to(transports[-1])

    def run(*arguments: str, stdin: str | bytes = "") -> Result:
        return CliRunner().invoke(app, ["stream", *arguments], input=stdin, obj=connect)

    return run


def published(transports: list[FilledTransport]) -> list[tuple[bytes, bytes | None, int]]:
    return [(body, key, sequence) for body, _, _, key, sequence in transports[-1].publishers[0].keyed]


def test_a_trim_says_what_is_first_now(invoke: Invoke, broker: FakeBroker) -> None:
    broker.answers["TrimStream"] = lambda _: wire.TrimStreamResponse(first=7).SerializeToString()

    done = invoke("trim", "orders", "--before", "9")

    assert done.stdout == "the first offset of 'orders' is 7\n"
    assert wire.TrimStreamRequest.FromString(broker.calls[-1][1]).before == 9


def test_a_stream_is_declared_with_what_it_keeps(invoke: Invoke, broker: FakeBroker) -> None:
    done = invoke("declare", "clicks", "--partitions", "2", "--max-age", "7D", "--max-bytes", "1000")

    assert done.stdout == "stream 'clicks' declared with 2 partitions\n"
    request = wire.DeclareStreamRequest.FromString(broker.calls[-1][1])
    assert (request.name, request.partitions) == ("clicks", 2)
    assert request.arguments["x-max-age"].string_value == "7D"
    assert request.arguments["x-max-length-bytes"].int_value == 1_000


def test_streams_are_listed_and_deleted(invoke: Invoke) -> None:
    listed = json.loads(invoke("list", "--output", "json").stdout)

    assert [(one["name"], one["partitions"], one["message_count"]) for one in listed] == [("orders", ["orders"], 3)]
    assert '{"x-max-age":"7D"}' in invoke("list").stdout
    assert invoke("delete", "orders").stdout == "stream 'orders' deleted with 7 messages\n"


@pytest.mark.parametrize(("count", "text"), [(0, "0 messages"), (1, "1 message"), (2_000, "2,000 messages")])
def test_a_number_has_its_noun_in_the_right_form(count: int, text: str) -> None:
    assert counted(count, "message") == text


def test_stages_are_listed_and_deleted(invoke: Invoke) -> None:
    (stage,) = json.loads(invoke("stages", "--output", "json").stdout)

    assert (stage["name"], stage["row_count"], stage["last_batch"]) == ("nightly", 9, 4)
    assert "1970-01-01T00:00:01.500" in invoke("stages").stdout
    assert invoke("stages", "--delete", "nightly").stdout == "stage 'nightly' deleted with 9 rows\n"


def test_producers_are_listed_page_by_page_and_forgotten(invoke: Invoke) -> None:
    listed = json.loads(invoke("producers", "--output", "json").stdout)

    assert [(one["name"], one["sequence"]) for one in listed] == [("monday", 7), ("tuesday", 7)]
    assert "no producer 'friday'" in invoke("producers", "--delete", "friday").stderr


def test_lines_are_published_with_their_keys(invoke: Invoke, transports: list[FilledTransport]) -> None:
    invoke("publish", "orders", "--key-separator", ":", stdin="anna:1\nben:2\n3\n")
    assert published(transports) == [(b"1", b"anna", 0), (b"2", b"ben", 0), (b"3", None, 0)]

    done = invoke("publish", "orders", "hello", "--key", "anna", "--output", "json")
    assert published(transports) == [(b"hello", b"anna", 0)]
    assert json.loads(done.stdout) == {"published": 1}


def test_a_producer_s_line_numbers_are_its_sequences(invoke: Invoke, transports: list[FilledTransport]) -> None:
    invoke("publish", "orders", "--producer", "import", stdin="a\nb\nc\n")

    assert [sequence for _, _, sequence in published(transports)] == [1, 2, 3]
    assert transports[-1].publishers[0].options.producer == "import"


def test_what_is_read_is_printed_and_stays(invoke: Invoke, transports: list[FilledTransport]) -> None:
    plain = invoke("read", "orders", "--from", "first", "--until", "next")
    described = [
        json.loads(line) for line in invoke("read", "orders", "--until", "next", "--output", "json").stdout.splitlines()
    ]

    assert plain.stdout == "1\n2\n3\n"
    assert [(one["offset"], one["body"], one["partition"], one["key"]) for one in described] == [
        (1, "1", "orders", None),
        (2, "2", "orders", None),
        (3, "3", "orders", None),
    ]
    assert transports[-1].readers[0].stored == []


def test_a_group_stores_what_was_printed(invoke: Invoke, transports: list[FilledTransport]) -> None:
    assert invoke("read", "orders", "--group", "billing", "--count", "2").stdout == "1\n2\n"

    assert transports[-1].readers[0].stored == [2]


def test_a_place_that_is_none_is_one_line_on_stderr(invoke: Invoke) -> None:
    done = invoke("read", "orders", "--from", "yesterday")

    assert (done.exit_code, done.stdout) == (1, "")
    assert "'yesterday' is not a position in a stream" in done.stderr
    assert invoke("groups", "orders", "--store", "billing").exit_code == 2


def test_offsets_and_groups_are_shown_and_changed(invoke: Invoke, broker: FakeBroker) -> None:
    assert "1970-01-01T00:00:01.500+00:00" in invoke("offsets", "orders").stdout
    assert json.loads(invoke("offsets", "orders", "--output", "json").stdout)[0]["next"] == 4
    groups = json.loads(invoke("groups", "orders", "--output", "json").stdout)
    assert (groups[0]["name"], groups[0]["lag"]) == ("billing", 1)

    changed = invoke("groups", "orders", "--store", "a=b=7", "--delete", "old")
    assert "group 'old' has no offsets" in changed.stderr
    stored = next(payload for name, payload in broker.calls if name == "StoreOffset")
    assert wire.StoreOffsetRequest.FromString(stored) == wire.StoreOffsetRequest(
        vhost="/", partition="orders", group="a=b", offset=7
    )


def test_reading_what_comes_says_what_it_waits_for(invoke: Invoke) -> None:
    hint = "waiting for new messages; --from first reads the stored ones, too\n"

    assert invoke("read", "orders", "--idle", "0").stderr == hint
    assert invoke("read", "orders", "--idle", "0", "--from", "first").stderr == ""
    assert invoke("read", "orders", "--until", "next").stderr == ""
