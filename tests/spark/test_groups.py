"""Reports of a query's progress to a group: one connection, and a broker that is away ends nothing."""

import logging
from pathlib import Path

import pytest

import penstock
from penstock.spark.groups import GroupProgress
from penstock.spark.options import parse_read_options
from penstock.spark.positions import Position, Positions
from support import Broker


def at(offset: int) -> Positions:
    return {"events": Position("events", "", offset, offset - 1)}


def lag(broker: Broker) -> int | None:
    with penstock.connect(broker.uri(), native=False) as connection:
        return next((group.lag for group in connection.stream("events").groups()), None)


def declare(broker: Broker) -> None:
    with penstock.connect(broker.uri(), native=False) as connection:
        connection.declare_stream("events")
        connection.stream("events").publish_many([b"%d" % number for number in range(10)])


def test_a_broker_that_is_away_is_logged_once_and_told_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A query died of the lost connection."""
    with Broker(tmp_path / "data") as broker:
        declare(broker)
        progress = GroupProgress(parse_read_options({"uri": broker.uri(), "stream": "events", "group": "lake"}))
        progress.store(at(4))
        assert lag(broker) == 7
        broker.kill()
        with caplog.at_level(logging.WARNING):
            progress.store(at(6))
            progress.store(at(6))
        broker.start()

        progress.store(at(6))

        assert lag(broker) == 5
        assert [record.message.partition(":")[0] for record in caplog.records] == [
            "group 'lake' of stream 'events' was not stored"
        ]
        broker.kill()
        broker.start()
        # The connection is of the broker's earlier run.
        progress.store(at(9))
        assert lag(broker) == 2
        progress.close()


def test_batches_share_a_connection(broker: Broker, connection: penstock.Connection) -> None:
    declare(broker)
    before = {each.id for each in connection.admin.list_connections()}
    progress = GroupProgress(parse_read_options({"uri": broker.uri(), "stream": "events", "group": "lake"}))

    for offset in (2, 3, 3, 4):
        progress.store(at(offset))

    assert len({each.id for each in connection.admin.list_connections()} - before) == 1
    progress.close()


def test_a_partition_that_is_away_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = GroupProgress(
        parse_read_options({"uri": "penstock://127.0.0.1:1/", "stream": "events", "group": "lake"})
    )
    told: list[Positions] = []
    monkeypatch.setattr(progress, "_store_again", told.append)

    progress.store({**at(4), "gone": Position("gone", "", 9, 8, is_away=True)})

    assert told == [at(4)]
