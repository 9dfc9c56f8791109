"""Streams on a real broker: read from anywhere, retained, deduplicated, routed by key."""

import asyncio
import json
import subprocess
from datetime import UTC, datetime

import pytest

import penstock
import penstock.aio
from penstock.routing.murmur3 import murmur3
from support import Broker
from support.broker import penstock_command
from support.waiting import eventually


def bodies(messages: penstock.StreamReader) -> list[bytes]:
    return [message.body for message in messages]


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]


@pytest.fixture
def stream(connection: penstock.Connection) -> penstock.Stream:
    """With a hundred messages."""
    connection.declare_stream("events")
    stream = connection.stream("events")
    stream.publish_many(numbered(1, 100))
    return stream


def test_reading_takes_nothing_away_and_begins_where_it_is_told(stream: penstock.Stream) -> None:
    everything = list(stream.read("first", until="next"))
    offsets = [message.offset for message in everything]

    assert [message.body for message in everything] == numbered(1, 100)
    assert offsets == sorted(set(offsets))
    assert bodies(stream.read("first", count=3)) == numbered(1, 3)
    assert bodies(stream.read("last", until="next")) == [b"100"]
    assert bodies(stream.read(-7, until="next")) == numbered(94, 100)
    assert bodies(stream.read(-1_000, until="next")) == numbered(1, 100)
    assert bodies(stream.read(offsets[41], until=offsets[44])) == numbered(42, 44)
    assert bodies(stream.read("1h", until="next")) == numbered(1, 100)
    assert bodies(stream.read(datetime.fromtimestamp(0, UTC), until="next")) == numbered(1, 100)
    assert bodies(stream.read("first", until=datetime.fromtimestamp(1, UTC))) == []


def test_a_reader_of_the_next_message_gets_what_comes_from_now_on(stream: penstock.Stream) -> None:
    with stream.read() as reader:
        eventually(lambda: stream.info().reader_count, 1)
        stream.publish(b"new")

        assert next(iter(reader)).body == b"new"
    eventually(lambda: stream.info().reader_count, 0)


def test_a_time_finds_the_first_message_stored_at_it_or_later(stream: penstock.Stream) -> None:
    messages = list(stream.read("first", until="next"))
    (status,) = stream.offsets(at=datetime.fromtimestamp(messages[50].stored_at_ms / 1_000, UTC))
    first_of_that_time = next(one for one in messages if one.stored_at_ms >= messages[50].stored_at_ms)

    assert status.at_timestamp == first_of_that_time.offset
    assert (status.first, status.next) == (messages[0].offset, messages[-1].offset + 1)
    assert (status.message_count, status.first_timestamp_ms) == (100, messages[0].stored_at_ms)
    assert status.last_timestamp_ms == messages[-1].stored_at_ms
    assert stream.offsets(at="2100-01-01T00:00:00Z")[0].at_timestamp == status.next
    assert stream.offsets(at="1970-01-02T00:00:00Z")[0].at_timestamp == status.first


def test_a_message_is_read_as_it_was_published(connection: penstock.Connection) -> None:
    connection.declare_stream("events")
    stream = connection.stream("events")
    properties = penstock.Properties(content_type="text/plain", message_id="7")
    stream.publish(b"body", key=b"\x00\xff", properties=properties, headers={"n": 1})
    stream.publish(b"", key="")
    stream.publish(b"none")

    first, second, third = stream.read("first", until="next")

    assert (first.key, second.key, third.key) == (b"\x00\xff", b"", None)
    assert (first.properties.content_type, first.properties.message_id, first.headers) == ("text/plain", "7", {"n": 1})
    assert abs(first.stored_at.timestamp() - datetime.now(UTC).timestamp()) < 300
    assert first.stored_at == datetime.fromtimestamp(first.stored_at_ms / 1_000, UTC)
    assert (first.routing_key, first.partition) == ("events", "events")
    assert isinstance(first, penstock.StreamMessage)
    assert repr(first) == f"<StreamMessage {first.offset} of events, 4 bytes>"


def test_streams_are_read_and_queues_are_consumed(connection: penstock.Connection, stream: penstock.Stream) -> None:
    connection.declare_queue("jobs")

    with pytest.raises(penstock.InvalidArgumentError, match="Read"):
        list(connection.consume("events"))
    with pytest.raises(penstock.InvalidArgumentError, match="Read"):
        connection.get("events")
    with pytest.raises(penstock.InvalidArgumentError, match="consume"):
        connection.stream("jobs").read()
    with pytest.raises(penstock.NotFoundError):
        connection.stream("nothing").read()


def test_a_deleted_stream_ends_its_readers(connection: penstock.Connection, stream: penstock.Stream) -> None:
    with stream.read() as reader:
        eventually(lambda: stream.info().reader_count, 1)

        assert connection.delete_stream("events") == 100

        with pytest.raises(penstock.CancelledError):
            list(reader)
    with pytest.raises(penstock.ReturnedError):
        stream.publish(b"late")


def test_purging_empties_a_stream_and_offsets_go_on(connection: penstock.Connection, stream: penstock.Stream) -> None:
    (before,) = stream.offsets()

    assert connection.purge_queue("events") == 100
    stream.publish(b"after")

    (message,) = stream.read("first", until="next")
    assert (message.body, message.offset) == (b"after", before.next)


def test_a_group_goes_on_behind_what_it_stored(stream: penstock.Stream) -> None:
    messages = list(stream.read("first", until="next", group="billing"))
    assert [(group.name, group.offset) for group in stream.groups()] in ([], [("billing", None)])

    stream.store("billing", messages[59].offset)

    assert bodies(stream.read("first", until="next", group="billing")) == numbered(61, 100)
    assert bodies(stream.read("first", until="next", group="other")) == numbered(1, 100)
    (group,) = [each for each in stream.groups() if each.name == "billing"]
    assert (group.offset, group.lag, group.partition) == (messages[59].offset, 40, "events")
    with pytest.raises(penstock.InvalidArgumentError, match="next message"):
        stream.store("billing", messages[-1].offset + 1)

    assert stream.delete_group("billing")
    assert bodies(stream.read("first", until="next", group="billing")) == numbered(1, 100)


def test_a_reader_stores_in_passing(stream: penstock.Stream) -> None:
    with stream.read("first", count=30, group="a", auto_store=True) as reader:
        assert len(list(reader)) == 30
    eventually(lambda: [group.lag for group in stream.groups() if group.name == "a"], [70])

    with stream.read("first", group="b") as reader:
        messages = iter(reader)
        for _ in range(10):
            message = next(messages)
        reader.store(message)
        eventually(lambda: [group.lag for group in stream.groups() if group.name == "b"], [90])


def test_a_second_reader_of_a_group_ends_the_first_and_passes_over_nothing(stream: penstock.Stream) -> None:
    """Earlier both read on, and a reader that reconnected started after the other's stored offset."""
    first = stream.read("first", group="g")
    messages = iter(first)
    done = [next(messages) for _ in range(10)]
    first.store(done[-1])
    eventually(lambda: [group.lag for group in stream.groups()], [90])

    with stream.read("first", group="g") as second:
        heirs = iter(second)
        assert [next(heirs).body for _ in range(5)] == numbered(11, 15)
        with pytest.raises(penstock.PenstockError, match="single_active"):
            list(messages)
        first.store(done[2])
        first.close()
        assert [next(heirs).body for _ in range(85)] == numbered(16, 100)


def test_a_waiting_reader_takes_over_behind_the_stored_offset(stream: penstock.Stream) -> None:
    first = stream.read("first", group="g", single_active=True)
    messages = iter(first)
    taken = [next(messages) for _ in range(20)]
    second = stream.read("first", group="g", single_active=True)
    eventually(lambda: stream.info().reader_count, 2)
    assert (first.active_partitions, second.active_partitions) == (["events"], [])
    first.store(taken[-1])
    eventually(lambda: [group.lag for group in stream.groups()], [80])

    first.close()

    heirs = iter(second)
    assert [next(heirs).body for _ in range(80)] == numbered(21, 100)
    assert second.active_partitions == ["events"]
    second.close()


def test_a_repeated_publisher_stores_nothing_twice(connection: penstock.Connection) -> None:
    connection.declare_stream("events")
    stream = connection.stream("events")
    with stream.publisher("import") as publisher:
        assert publisher.last_sequence == 0
        publisher.publish_many(numbered(1, 50))
        publisher.publish(b"51", sequence=51)
        publisher.publish(b"again", sequence=20)
        publisher.publish(b"60", sequence=60)

    with stream.publisher("import") as publisher:
        assert publisher.last_sequence == 60
        publisher.publish_many(numbered(1, 70), sequence=1)
    with stream.publisher("other") as publisher:
        publisher.publish(b"other")

    assert bodies(stream.read("first", until="next")) == [*numbered(1, 51), b"60", *numbered(61, 70), b"other"]


def test_keys_place_messages_and_partitions_are_read_together(connection: penstock.Connection) -> None:
    declared = connection.declare_stream("clicks", partitions=3, max_age="1h")
    clicks = connection.stream("clicks")
    keys = [b"anna", b"ben", b"carla", b"dora", b"\xff\x00", b""]
    clicks.publish_keyed((key, b"%d" % number) for number in range(20) for key in keys)
    connection.publish(b"by routing key", exchange="clicks", routing_key="emil")

    messages = list(clicks.read("first", until="next"))

    assert declared.partitions == ("clicks-0", "clicks-1", "clicks-2")
    assert len(messages) == 20 * len(keys) + 1
    for message in messages:
        key = message.routing_key.encode() if message.key is None else message.key
        assert message.partition == f"clicks-{murmur3(key) % 3}"
    for key in keys:
        assert [message.body for message in messages if message.key == key] == numbered(0, 19)
    chosen = f"clicks-{murmur3(b'anna') % 3}"
    alone = list(connection.stream(chosen).read("first", until="next"))
    assert [one.body for one in alone] == [one.body for one in messages if one.partition == chosen]
    (info,) = connection.admin.list_streams()
    assert (info.name, info.message_count, dict(info.arguments)) == ("clicks", 121, {"x-max-age": "1h"})


def test_a_partitioned_stream_is_deleted_as_one(connection: penstock.Connection) -> None:
    connection.declare_stream("clicks", partitions=3)
    connection.stream("clicks").publish_keyed([("a", b"1"), ("b", b"2"), ("c", b"3")])

    with pytest.raises(penstock.PreconditionFailedError, match="delete the stream"):
        connection.delete_queue("clicks-1")
    assert connection.delete_stream("clicks") == 3

    assert connection.admin.list_streams() == []
    assert connection.admin.list_queues() == []
    assert "clicks" not in {exchange.name for exchange in connection.admin.list_exchanges()}


def test_a_stream_is_bound_like_any_queue(connection: penstock.Connection, stream: penstock.Stream) -> None:
    connection.declare_queue("jobs")
    connection.bind_queue("events", "amq.topic", "web.#")
    connection.bind_queue("jobs", "amq.topic", "#")

    connection.publish(b"both", exchange="amq.topic", routing_key="web.page")

    message = connection.get("jobs", auto_ack=True)
    assert message is not None
    assert message.body == b"both"
    (read,) = stream.read("last", until="next")
    assert (read.body, read.exchange, read.routing_key) == (b"both", "amq.topic", "web.page")
    assert {queue.name: queue.type for queue in connection.admin.list_queues()} == {
        "events": "stream",
        "jobs": "classic",
    }


def test_a_slow_reader_of_large_messages_gets_them_all(connection: penstock.Connection) -> None:
    connection.declare_stream("large")
    stream = connection.stream("large")
    stream.publish_many([bytes([number]) * 300_000 for number in range(60)])

    sizes = [(message.body[:1], len(message.body)) for message in stream.read("first", until="next")]

    assert sizes == [(bytes([number]), 300_000) for number in range(60)]


def test_a_loop_reads_a_stream_while_it_grows(broker: Broker, vhost: str) -> None:
    async def run() -> None:
        async with penstock.aio.connect(broker.uri(vhost)) as connection:
            await connection.declare_stream("readings", partitions=2)
            readings = connection.stream("readings")
            async with readings.read("first", count=40) as reader:
                await readings.publish_keyed((b"%d" % number, b"%d" % number) for number in range(20))
                async with await readings.publisher("meter") as publisher:
                    await asyncio.gather(*(publisher.publish(b"m", key=str(number)) for number in range(20)))
                found = [message.key async for message in reader]
            assert sorted(key or b"" for key in found) == sorted(b"%d" % number for number in [*range(20), *range(20)])
            assert sum(each.message_count for each in await readings.offsets()) == 40

    asyncio.run(run())


def test_the_command_line_tells_what_is_there(broker: Broker, vhost: str, stream: penstock.Stream) -> None:
    def run(*arguments: str, given: str = "") -> str:
        command = [penstock_command(), "stream", *arguments, "--uri", broker.uri(vhost)]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=True, timeout=30)
        return done.stdout

    assert run("publish", "events", "--key-separator", ":", given="k:101\n102\n") == "2 published and confirmed\n"
    assert run("read", "events", "--from", "-3", "--until", "next") == "100\n101\n102\n"
    lines = run(
        "read", "events", "--from", "-2", "--until", "next", "--output", "json", "--group", "audit"
    ).splitlines()
    assert [(one["body"], one["key"]) for one in map(json.loads, lines)] == [("101", "k"), ("102", None)]
    (offsets,) = json.loads(run("offsets", "events", "--at", "1h", "--output", "json"))
    assert (offsets["message_count"], offsets["at_timestamp"]) == (102, offsets["first"])
    (group,) = json.loads(run("groups", "events", "--output", "json"))
    assert (group["name"], group["lag"]) == ("audit", 0)


def test_a_scrape_tells_where_streams_and_groups_stand(broker: Broker, vhost: str, stream: penstock.Stream) -> None:
    stream.store("billing", stream.offsets()[0].next - 11)

    page = broker.scrape()

    (status,) = stream.offsets()
    labels = f'partition="events",vhost="{vhost}"'
    assert f"penstock_stream_first_offset{{{labels}}} {float(status.first)}" in page
    assert f"penstock_stream_next_offset{{{labels}}} {float(status.next)}" in page
    assert f'penstock_stream_group_lag{{group="billing",{labels}}} 10.0' in page
