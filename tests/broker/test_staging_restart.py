"""State of stages that outlives the process.

It has waiting rows, decisions, running copies, and expired names of producers.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

import penstock
from support import Broker
from support.waiting import eventually


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data") as broker:
        yield broker


@pytest.mark.slow
def test_what_was_staged_before_a_kill_is_published_after_it(own_broker: Broker) -> None:
    with penstock.connect(own_broker.uri()) as connection:
        connection.declare_stream("sink")
        attempt = connection.stage("job", stream="sink").stage(1, [b"a", b"b"])

    own_broker.kill()
    own_broker.start()

    with penstock.connect(own_broker.uri()) as connection:
        assert connection.stage("job", stream="sink").publish(1, [attempt]).stored == 2
        assert connection.stream("sink").info().message_count == 2


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", [0, 1, 3], ids=["at the decision", "early in the copy", "late in the copy"])
def test_a_batch_whose_broker_is_killed_while_it_is_copied_is_there_once(own_broker: Broker, part: int) -> None:
    """Wait for so many quarters of the batch to be copied, kill, and ask again with other rows."""
    count = 40_000
    rows = [b"%07d" % number * 20 for number in range(count)]
    with penstock.connect(own_broker.uri()) as connection:
        connection.declare_stream("sink")
        attempt = connection.stage("job", stream="sink").stage(1, rows)

        def publish() -> None:
            try:
                with penstock.connect(own_broker.uri(), native=False, timeout=120) as other:
                    other.stage("job", stream="sink").publish(1, [attempt])
            except penstock.PenstockError:
                pass  # the broker dies in the middle

        publishing = Thread(target=publish)
        publishing.start()
        stage = connection.admin.list_stages
        eventually(lambda: stage()[0].last_batch == 1, True, 60)
        sink = connection.stream("sink")
        eventually(lambda: sink.info().message_count >= part * count // 4, True, 60)
        own_broker.kill()
        publishing.join()
    own_broker.start()

    with penstock.connect(own_broker.uri(), timeout=120) as connection:
        stage_again = connection.stage("job", stream="sink")
        with pytest.raises(penstock.PreconditionFailedError, match="is not the one that was published"):
            stage_again.publish(1, [stage_again.stage(1, [b"other rows"])])
        again = stage_again.publish(1, [stage_again.stage(1, rows)])
        got = Counter(message.body for message in connection.stream("sink").read("first", until="next"))
        assert again.was_decided
        assert (len(set(rows) - set(got)), sum(got.values()) - len(got)) == (0, 0)
        assert got.total() == count
        assert [(each.row_count, each.is_copying) for each in connection.admin.list_stages()] == [(0, False)]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_producers_name_that_nobody_used_is_forgotten(tmp_path: Path) -> None:
    settings = tmp_path / "penstock.toml"
    settings.write_text("producer_memory_days = 0.00002\n")  # under two seconds
    with (
        Broker(tmp_path / "data", "--config", str(settings)) as broker,
        penstock.connect(broker.uri()) as connection,
    ):
        connection.declare_stream("s")
        stream = connection.stream("s")
        with stream.publisher("idle") as idle, stream.publisher("held") as held:
            idle.publish(b"a", sequence=5)
            held.publish(b"b", sequence=5)
            idle.close()

            eventually(lambda: [one.name for one in connection.admin.list_producers()], ["held"], 60)

            held.publish(b"c", sequence=5)
            with stream.publisher("idle") as again:
                assert again.last_sequence == 0
                again.publish(b"a", sequence=5)
        assert [message.body for message in stream.read("first", until="next")] == [b"a", b"b", b"a"]
