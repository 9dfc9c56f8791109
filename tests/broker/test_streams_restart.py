"""State of streams that outlives the process: messages with their offsets, groups, producers, running readers."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

import penstock
from support import Broker
from support.broker import penstock_command
from support.waiting import eventually


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data") as broker:
        yield broker


def kill(broker: Broker) -> None:
    broker.kill()
    broker.start()


@pytest.mark.slow
@pytest.mark.parametrize("restart", [Broker.restart, kill], ids=["stop", "kill"])
def test_a_stream_is_the_same_after_a_start(own_broker: Broker, restart: Callable[[Broker], None]) -> None:
    with penstock.connect(own_broker.uri()) as connection:
        connection.declare_stream("clicks", partitions=2, max_bytes=10**9)
        clicks = connection.stream("clicks")
        clicks.publish_keyed((b"%d" % (number % 7), b"%d" % number) for number in range(500))
        before = [(one.partition, one.offset, one.key, one.body) for one in clicks.read("first", until="next")]
        clicks.store("billing", clicks.offsets()[0].first + 10, "clicks-0")
        with clicks.publisher("import") as publisher:
            publisher.publish(b"once", key="1", sequence=9)
        groups, offsets = clicks.groups(), clicks.offsets()

    restart(own_broker)

    with penstock.connect(own_broker.uri()) as connection:
        clicks = connection.stream("clicks")
        with clicks.publisher("import") as publisher:
            assert publisher.last_sequence == 9
            publisher.publish(b"twice", key="1", sequence=9)
        after = [(one.partition, one.offset, one.key, one.body) for one in clicks.read("first", until="next")]
        assert sorted(one for one in after if one[3] != b"once") == sorted(before)
        assert [one[3] for one in after].count(b"once") == 1
        assert b"twice" not in [one[3] for one in after]
        assert clicks.groups() == groups
        assert clicks.offsets() == offsets
        connection.declare_stream("clicks", partitions=2, max_bytes=10**9)


@pytest.mark.slow
@pytest.mark.parametrize("native", [True, False], ids=["native", "pure"])
def test_a_reader_goes_on_through_a_kill_without_gap_or_repeat(own_broker: Broker, native: bool) -> None:
    count = 20_000
    with penstock.connect(own_broker.uri(), native=native) as connection:
        connection.declare_stream("events")
        events = connection.stream("events")
        events.publish_many([b"%d" % number for number in range(count)])
        found: list[bytes] = []
        reader = events.read("first", count=count + 100)

        def collect() -> None:
            found.extend(message.body for message in reader)

        thread = Thread(target=collect)
        thread.start()
        eventually(lambda: len(found) > 1_000, True)
        kill(own_broker)
        with penstock.connect(own_broker.uri()) as other:
            other.stream("events").publish_many([b"late"] * 100)
        thread.join(60)

    assert found == [*(b"%d" % number for number in range(count)), *[b"late"] * 100]


@pytest.mark.slow
def test_a_named_publisher_goes_on_through_a_kill_and_nothing_is_stored_twice(own_broker: Broker) -> None:
    with penstock.connect(own_broker.uri()) as connection:
        connection.declare_stream("events")
        with connection.stream("events").publisher("import") as publisher:
            bodies = [b"%d" % number for number in range(30_000)]
            thread = Thread(target=publisher.publish_many, args=(bodies,))
            thread.start()
            eventually(lambda: connection.stream("events").offsets()[0].message_count > 500, True)
            kill(own_broker)
            thread.join(60)

        found = [message.body for message in connection.stream("events").read("first", until="next")]

    assert found == bodies


@pytest.mark.slow
def test_when_the_active_reader_s_process_is_killed_another_takes_over(own_broker: Broker) -> None:
    with penstock.connect(own_broker.uri()) as connection:
        connection.declare_stream("events")
        events = connection.stream("events")
        # More than a pipe buffers: the victim cannot have printed, and stored, all of them.
        events.publish_many([b"%07d" % number + b"x" * 193 for number in range(2_000)])
        command = [penstock_command(), "stream", "read", "events", "--from", "first", "--group", "g", "--single-active"]
        with subprocess.Popen([*command, "--uri", own_broker.uri()], stdout=subprocess.PIPE) as victim:
            assert victim.stdout is not None
            try:
                printed = [int(victim.stdout.readline()[:7]) for _ in range(1_000)]
                heir = events.read("first", group="g", single_active=True)
                eventually(lambda: events.info().reader_count, 2)
                assert heir.active_partitions == []
            finally:
                victim.kill()
        found = []
        for message in heir:
            found.append(int(message.body[:7]))
            if found[-1] == 1_999:
                break

    # Printed offsets that were not stored come again; nothing is skipped.
    assert printed == list(range(1_000))
    assert found[0] <= 1_500
    assert found == list(range(found[0], found[-1] + 1))


@pytest.mark.slow
def test_retention_frees_the_oldest_segments_and_never_too_much(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker, penstock.connect(broker.uri()) as connection:
        connection.declare_stream("events", max_bytes=3_000_000)
        events = connection.stream("events")
        for batch in range(100):
            events.publish_many([b"%07d" % (batch * 1_000 + number) + b"x" * 93 for number in range(1_000)])

        def is_bounded() -> bool:
            (status,) = events.offsets()
            return 3_000_000 <= status.bytes < 9_000_000

        def read_all() -> tuple[list[penstock.StreamMessage], int]:
            """Read all messages; again if retention freed a segment meanwhile."""
            (before,) = events.offsets()
            found = list(events.read("first", until="next"))
            (after,) = events.offsets()
            return (found, after.first) if before.first == after.first else read_all()

        eventually(is_bounded, True)
        messages, first = read_all()
        assert messages[0].offset == first > 1
        assert [int(message.body[:7]) for message in messages] == list(range(100_000 - len(messages), 100_000))
        assert next(iter(events.read(1, count=1))).offset == first
        broker.restart()
        assert events.offsets()[0].first >= first
