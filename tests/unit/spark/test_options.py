"""Options from Spark's texts: parsing, refusals and their messages."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.errors import OptionError
from penstock.spark.options import parse_read_options, parse_write_options
from penstock.spark.places import EARLIEST, LATEST, Place
from penstock.spark.shares import Limits
from penstock.spark.subscriptions import Subscription

BAD_RECORDS = {"parsed": "json", "parsedSchema": "a INT"}


def test_a_name_is_found_whatever_its_case() -> None:
    options = parse_read_options({"STREAM": "events", "startingoffsets": "earliest", "MaxOffsetsPerTrigger": "7"})

    assert (options.stream, options.starting, options.max_offsets) == ("events", EARLIEST, 7)


def test_without_options_beside_the_stream_defaults_hold() -> None:
    options = parse_read_options({"stream": "events"})

    assert (options.starting, options.ending, options.min_partitions) == (None, None, 1)
    assert (options.retry_seconds, parse_write_options({"stream": "a"}).retry_seconds) == (30, 30)
    assert (options.fail_on_data_loss, options.with_headers, options.columns) == (True, False, ())


def test_the_path_of_load_names_the_stream_as_well() -> None:
    assert parse_read_options({"path": "events"}).stream == "events"


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"startingOffsets": "latest"}, LATEST),
        ({"startingOffsets": '{"events": 23, "other": -2}'}, Place("offsets", None, {"events": 23, "other": -2})),
        ({"startingOffsets": '{"events": {"0": 23, "1": -2}}'}, Place("offsets", None, {"events": {"0": 23, "1": -2}})),
        ({"startingTimestamp": "1700000000000"}, Place("times", 1_700_000_000_000)),
        ({"startingOffsetsByTimestamp": '{"events": 5}'}, Place("times", None, {"events": 5})),
    ],
)
def test_places_are_words_offsets_or_times(options: dict[str, str], place: Place) -> None:
    assert parse_read_options({"stream": "events", **options}).starting == place


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "events"}, "only one of stream and subscribe"),
        ({"assign": '{"a": [0]}'}, "only one of stream and assign"),
        ({"subscribePattern": "("}, "regular expression"),
        ({"groupIdPrefixes": "a"}, "no option 'groupIdPrefixes' to read from penstock; "),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "must not be above 'maxOffsetsPerTrigger'"),
        ({"maxTriggerDelay": "soon"}, "a number and a unit"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "one of error, latest"),
        (
            {"maxOffsetPerTrigger": "1"},
            "no option 'maxOffsetPerTrigger' to read from penstock; valid are: stream, path, sub",
        ),
        ({"durability": "disk"}, "no option 'durability' to read from"),
        ({"startingOffsets": "begin"}, "earliest, latest or JSON"),
        ({"startingOffsets": "{}"}, "earliest, latest or JSON"),
        ({"startingOffsets": '{"events": -3}'}, "no number below -2"),
        ({"startingOffsets": '{"events": true}'}, "no number below -2"),
        ({"startingOffsets": "latest", "startingTimestamp": "1"}, "only one of startingOffsets and startingTimestamp"),
        ({"maxOffsetsPerTrigger": "0"}, "from 1 to"),
        ({"maxOffsetsPerTrigger": "many"}, "whole number"),
        ({"minPartitions": "5000"}, "from 1 to 4096"),
        ({"retrySeconds": "90000"}, "from 0 to 86400"),
        ({"failOnDataLoss": "yes"}, "true or false"),
        ({"columns": "body,,key"}, "commas"),
        ({"columns": "body,body"}, "each once"),
        ({"parsed": "xml"}, "one of none, json, avro, protobuf"),
        ({"parsed": "avro"}, "needs 'parsedSchema', such as @order.avsc"),
        ({"parsed": "avro", "parsedSchema": "@/gone.avsc"}, "the file cannot be read"),
        ({"parsed": "protobuf", "parsedMessage": "a.A"}, "needs 'parsedDescriptor'"),
        ({"parsed": "protobuf", "parsedDescriptor": "/gone.desc"}, "'/gone.desc': the file cannot be read"),
        ({"parsed": "json", "parsedSchema": "a INT", "parsedMessage": "a.A"}, "are for parsed=protobuf"),
        ({"parsed": "json"}, "needs 'parsedSchema'"),
        ({"deadLetterStream": "bad"}, "need 'parsed'"),
        ({"columnNameOfCorruptRecord": "bad"}, "need 'parsed'"),
        (
            {"parsed": "avro", "parsedSchema": "{}", "columnNameOfCorruptRecord": "bad"},
            "is for parsed=json, whose bodies are text",
        ),
        ({"dropBadRecords": "true"}, "need 'parsed'"),
        (
            {"parsed": "json", "parsedSchema": "a INT", "deadLetterStream": "bad", "dropBadRecords": "true"},
            "only one of 'deadLetterStream'",
        ),
        ({"uri": "kafka://here"}, "penstock://"),
        ({"path": "orders"}, "both 'stream' and load\\(\\) name a stream, 'events' and 'orders'"),
        ({"maxTriggerDelay": "1s"}, "belongs to 'minOffsetsPerTrigger'"),
        ({"minOffsetsPerTrigger": "1", "maxTriggerDelay": "9" * 400 + "d"}, "it must be from 0 to 366"),
        ({"startingOffsetsByTimestampStrategy": "latest"}, "belongs to a start at a time"),
        ({"startingOffsetsByTimestampStrategy": "latest", "startingOffsets": "earliest"}, "belongs to a start at a"),
        ({"startingOffsets": f'{{"events": {"9" * 400}}}'}, "earliest, latest or JSON"),
        ({"startingOffsetsByTimestamp": f'{{"events": {2**63}}}'}, "it must be JSON such as"),
        ({"endingOffsets": "earliest"}, "a read that ends at the first message has none"),
        ({"endingOffsets": '{"events": {"0": -2, "1": -2}}'}, "a read that ends at the first message has none"),
        ({"includeHeaders": "true", "columns": "body"}, "'columns' names all; add 'headers'"),
        ({**BAD_RECORDS, "deadLetterStream": "events"}, "'events', which the read has too"),
    ],
)
def test_what_cannot_be_is_refused_by_name(options: dict[str, str], text: str) -> None:
    with pytest.raises((OptionError, ValueError), match=text):
        parse_read_options({"stream": "events", **options})


@pytest.mark.parametrize(
    "chosen", [{"subscribe": "a,bad"}, {"subscribePattern": ".*"}, {"assign": '{"bad": [0]}'}, {"path": "bad"}]
)
def test_dead_letters_do_not_come_back_into_the_read(chosen: dict[str, str]) -> None:
    """Each was a bad record again, and went there again, without end."""
    with pytest.raises(OptionError, match="'deadLetterStream' is 'bad', which the read has too"):
        parse_read_options({**chosen, **BAD_RECORDS, "deadLetterStream": "bad"})


def test_a_password_in_the_place_of_its_file_is_not_shown() -> None:
    with pytest.raises(OptionError, match="option 'passwordFile': the file cannot be read") as refused:
        parse_read_options({"stream": "a", "uri": "penstock://h:1/", "user": "u", "passwordFile": "s3cret"})

    assert "s3cret" not in str(refused.value)


def test_a_reading_needs_a_stream() -> None:
    with pytest.raises(OptionError, match="name the stream"):
        parse_read_options({})


@pytest.mark.parametrize(
    ("options", "subscription"),
    [
        ({"stream": "events"}, Subscription(("events",))),
        ({"path": "events"}, Subscription(("events",))),
        ({"subscribe": "events,orders"}, Subscription(("events", "orders"))),
        ({"subscribePattern": "ev.*"}, Subscription(pattern="ev.*")),
        ({"assign": '{"events": [0, 2]}'}, Subscription(("events",), assigned={"events": (0, 2)})),
    ],
)
def test_streams_are_chosen_by_name_list_pattern_or_assignment(
    options: dict[str, str], subscription: Subscription
) -> None:
    assert parse_read_options(options).subscription == subscription


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("15m", 900_000), ("30 s", 30_000), ("250", 250), ("2h", 7_200_000), ("1d", 86_400_000), ("5min", 300_000)],
)
def test_a_delay_is_a_number_and_a_unit(text: str, milliseconds: int) -> None:
    options = {"stream": "events", "minOffsetsPerTrigger": "1", "maxTriggerDelay": text}

    assert parse_read_options(options).trigger_delay_ms == milliseconds


def test_limits_of_a_batch_are_the_options() -> None:
    options = {"maxOffsetsPerTrigger": "7", "maxBytesPerTrigger": "8", "minPartitions": "3"}

    found = parse_read_options({"stream": "events", **options, "maxRecordsPerPartition": "5"})

    assert found.limits == Limits(7, 8, 3, 5)
    assert parse_read_options({"stream": "events"}).trigger_delay_ms == 15 * 60_000


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "either 'stream' or 'exchange'"),
        ({"stream": "a", "exchange": "b"}, "either 'stream' or 'exchange'"),
        ({"stream": "a", "routingKey": "b"}, "belongs to 'exchange'"),
        ({"stream": "a", "startingOffsets": "latest"}, "no option 'startingOffsets' to write to"),
        ({"stream": "a", "durability": "tape"}, "one of os, disk"),
        ({"stream": "a", "staged": "perhaps"}, "true or false"),
        ({"stream": "a", "staged": "true", "durability": "os"}, "leave 'durability' out"),
        ({"stream": "a", "txnAppId": "copier"}, "give both or none"),
        ({"stream": "a", "txnVersion": "1"}, "give both or none"),
        ({"stream": "a", "txnAppId": "copier", "txnVersion": "-1"}, "it must be from 0 to"),
        ({"stream": "a", "txnAppId": "copier", "txnVersion": "1", "producer": "p"}, "leave 'producer' out"),
        ({"stream": "a", "producer": "p" * 201}, "choose a shorter name"),
    ],
)
def test_what_cannot_be_written_is_refused_by_name(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        parse_write_options(options)


def test_what_spark_hands_on_of_its_own_is_no_option_of_the_sink() -> None:
    """A query with a name was refused: Spark passes the name on to its sink."""
    assert parse_write_options({"stream": "a", "checkpointLocation": "x", "queryName": "copy"}).stream == "a"


@given(st.dictionaries(st.sampled_from(["startingOffsets", "endingTimestamp", "columns", "keyIs"]), st.text()))
def test_any_text_is_understood_or_refused(options: dict[str, str]) -> None:
    told = ""
    try:
        parse_read_options({"stream": "events", **options})
    except OptionError as error:
        told = str(error)

    assert not told or any(name in told for name in options)


@pytest.mark.parametrize(
    "other",
    [
        {"parsedSchema": "b INT"},
        {"parsed": "avro"},
        {"deadLetterStream": "worse"},
        {"keyIs": "a"},
        {"routingKeyIs": "a"},
        {"startingOffsets": "earliest"},
    ],
)
def test_reads_with_other_bad_records_publish_them_under_other_names(other: dict[str, str]) -> None:
    """The second of two decodings in a union published nothing: the broker took its bad records for repetitions."""
    options = {"stream": "a", "parsed": "json", "parsedSchema": "a INT", "deadLetterStream": "bad"}

    first, again = parse_read_options(options), parse_read_options({**options, "columns": "key"})
    second = parse_read_options({**options, **other})

    assert first.dead_letters == again.dead_letters
    assert first.dead_letters != second.dead_letters


def test_a_schema_is_read_from_its_file_where_the_query_is_made(tmp_path: Path) -> None:
    (tmp_path / "a.avsc").write_text('{"type": "record"}')
    (tmp_path / "a.desc").write_bytes(b"\x0a")

    avro = parse_read_options({"stream": "a", "parsed": "avro", "parsedSchema": f"@{tmp_path / 'a.avsc'}"})
    protobuf = parse_read_options(
        {"stream": "a", "parsed": "protobuf", "parsedDescriptor": str(tmp_path / "a.desc"), "parsedMessage": "a.A"}
    )

    assert avro.decoding.schema == '{"type": "record"}'
    assert (protobuf.decoding.descriptors, protobuf.decoding.message) == (b"\x0a", "a.A")
    assert avro.dead_letters != protobuf.dead_letters
