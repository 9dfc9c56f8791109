"""The Flight action DescribeStreams: offsets, ids and row counts of streams, at once or when something is new."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

import penstock
from support import Broker
from support.describer import Describer, Found


@pytest.fixture
def describer(broker: Broker, vhost: str) -> Iterator[Describer]:
    found = Describer(broker, vhost)
    yield found
    found.client.close()


@pytest.fixture
def connection(broker: Broker, vhost: str) -> Iterator[penstock.Connection]:
    with penstock.connect(broker.uri(vhost)) as connection:
        yield connection


class Waiting:
    """A question on a thread of its own."""

    def __init__(self, ask: Callable[[], Found]) -> None:
        self.found: Found | None = None
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(ask,))
        self._thread.start()

    def _run(self, ask: Callable[[], Found]) -> None:
        try:
            self.found = ask()
        except (flight.FlightError, pa.ArrowException) as error:
            self.error = error

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def join(self) -> Found:
        self._thread.join(timeout=50)
        assert self.is_over, "it still waits"
        if self.error is not None:
            raise self.error
        assert self.found is not None
        return self.found


def test_a_stream_is_described_by_its_partitions(describer: Describer, connection: penstock.Connection) -> None:
    connection.declare_stream("events", partitions=2)
    connection.declare_stream("orders")
    connection.stream("events-1").publish_many([b"one", b"three"])

    found = describer.ask({"streams": ["orders", "events"]})

    ids = [partition.pop("id") for partition in found]
    assert len(set(ids)) == 3
    assert all(isinstance(text, str) and text for text in ids)
    empty = {"first": 1, "next": 1, "rows": 0, "bytes": 0, "runs": []}
    written = {"first": 1, "next": 3, "rows": 2, "bytes": 8, "runs": [[1, 3]]}
    assert found == [
        {"stream": "orders", "partition": "orders", **empty},
        {"stream": "events", "partition": "events-0", **empty, "partition_count": 2},
        {"stream": "events", "partition": "events-1", **written, "partition_count": 2},
    ]


def test_the_action_is_listed(describer: Describer) -> None:
    found = [action.type for action in describer.client.list_actions(describer.options)]
    assert found == ["DescribeStreams", "EndProducers"]


def test_a_declared_stream_keeps_its_id_and_the_next_of_that_name_has_another(
    describer: Describer, connection: penstock.Connection
) -> None:
    for dedicated in (False, True):
        connection.declare_stream("events", dedicated=dedicated)
        first = describer.one("events")["id"]
        connection.stream("events").publish(b"one")
        connection.declare_stream("events", dedicated=dedicated)
        assert describer.one("events")["id"] == first

        connection.delete_stream("events")
        connection.declare_stream("events", dedicated=dedicated)

        assert describer.one("events")["id"] != first
        connection.delete_stream("events")


def test_a_time_is_answered_with_its_offset(describer: Describer, connection: penstock.Connection) -> None:
    connection.declare_stream("events")
    connection.stream("events").publish_many([b"one", b"two"])

    assert describer.one("events", at_timestamp_ms=0)["at_timestamp"] == 1
    assert describer.one("events", at_timestamp_ms=2**50)["at_timestamp"] == 3
    assert "at_timestamp" not in describer.one("events")


def test_a_question_with_old_ends_is_answered_at_once(describer: Describer, connection: penstock.Connection) -> None:
    connection.declare_stream("events", partitions=2)
    connection.stream("events-0").publish(b"one")

    for ends in ({}, {"events-0": 2}, {"events-0": 1, "events-1": 1}, {"events-0": 3, "events-1": 1}):
        found = describer.ask({"streams": ["events"], "ends": ends, "wait_ms": 60_000})
        assert [partition["next"] for partition in found] == [2, 1]


def test_a_question_waits_until_a_partition_has_a_new_message(
    describer: Describer, connection: penstock.Connection
) -> None:
    connection.declare_stream("events", partitions=2)
    ends = {"events-0": 1, "events-1": 1}
    ask = {"streams": ["events"], "ends": ends, "wait_ms": 60_000}
    waiting = Waiting(lambda: describer.ask(ask)[1])
    time.sleep(0.2)
    (stream,) = connection.admin.list_streams()
    assert stream.reader_count == 0, "a question is no reader"
    assert not waiting.is_over

    while not waiting.is_over:
        connection.stream("events-1").publish(b"one")
        time.sleep(0.05)

    assert waiting.join()["next"] > 1


def test_a_question_is_answered_when_its_time_is_over(describer: Describer, connection: penstock.Connection) -> None:
    connection.declare_stream("events")

    found = describer.one("events", ends={"events": 1}, wait_ms=50)

    assert (found["next"], found["rows"]) == (1, 0)


@pytest.mark.parametrize("dedicated", [False, True])
def test_a_question_ends_when_its_stream_is_deleted(
    describer: Describer, connection: penstock.Connection, dedicated: bool
) -> None:
    connection.declare_stream("events", dedicated=dedicated)
    waiting = Waiting(lambda: describer.one("events", ends={"events": 1}, wait_ms=60_000))
    time.sleep(0.2)

    connection.delete_stream("events")

    with pytest.raises(KeyError, match="stream 'events' in vhost"):
        waiting.join()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"events", "JSON object"),
        (b"{}", "streams"),
        (b"[" * 100_000, "JSON object"),
        ({"streams": []}, "1 to 1000 streams"),
        ({"streams": [f"stream-{number}" for number in range(1_001)]}, "1 to 1000 streams"),
        ({"streams": ["events", "events"]}, "names a stream twice"),
        ({"streams": ["events"], "wait_ms": 60_001}, "at most 60000"),
        ({"streams": ["events"], "wait_ms": -1}, "JSON object"),
        ({"streams": ["events"], "until": 7}, "until"),
        ({"streams": ["events"], "ends": {"events": "7"}}, "JSON object"),
        ({"streams": ["events", "nothing"]}, "stream 'nothing'"),
        ({"streams": ["jobs"]}, "jobs"),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused_with_a_sentence(
    describer: Describer, connection: penstock.Connection, body: dict[str, Any] | bytes, text: str
) -> None:
    connection.declare_stream("events")
    connection.declare_queue("jobs")

    with pytest.raises((flight.FlightError, ValueError, KeyError), match=text):
        describer.ask(body)


@pytest.fixture
def ada(broker: Broker, vhost: str) -> Iterator[Describer]:
    """Return the questions of a user who may use the virtual host, and nothing in it."""
    with penstock.connect(broker.uri(vhost)) as connection:
        connection.declare_stream("events")
        connection.admin.put_user("ada", "ada", tags=[])
        connection.admin.set_permission("ada", configure="", write="", read="", vhost=vhost)
        found = Describer(broker, vhost, "ada:ada")
        yield found
        found.client.close()
        connection.admin.delete_user("ada")


def test_a_question_needs_the_right_to_use_the_virtual_host(
    broker: Broker, ada: Describer, connection: penstock.Connection
) -> None:
    assert ada.one("events")["next"] == 1

    connection.admin.delete_permission("ada", vhost=ada.vhost)

    with pytest.raises(flight.FlightUnauthorizedError):
        ada.one("events")
    with pytest.raises(flight.FlightUnauthenticatedError):
        Describer(broker, ada.vhost, "ada:wrong").one("events")


@pytest.mark.parametrize("revoke", ["permission", "password"])
def test_a_question_ends_with_the_right_to_ask_it(ada: Describer, connection: penstock.Connection, revoke: str) -> None:
    waiting = Waiting(lambda: ada.one("events", ends={"events": 1}, wait_ms=60_000))
    time.sleep(0.3)
    assert not waiting.is_over

    if revoke == "permission":
        connection.admin.delete_permission("ada", vhost=ada.vhost)
    else:
        connection.admin.put_user("ada", "other", tags=[])

    with pytest.raises((flight.FlightUnauthorizedError, flight.FlightUnauthenticatedError)):
        waiting.join()


def test_clients_that_leave_make_room_for_others(
    broker: Broker, describer: Describer, connection: penstock.Connection
) -> None:
    """A connection may have 256 questions that wait."""
    connection.declare_stream("events")
    ask = {"streams": ["events"], "ends": {"events": 1}, "wait_ms": 60_000}
    body = json.dumps({"vhost": describer.vhost, **ask}).encode()
    for _ in range(600):
        options = flight.FlightCallOptions(headers=describer.headers, timeout=0.005)
        with pytest.raises((flight.FlightTimedOutError, flight.FlightError)):
            list(describer.client.do_action(flight.Action("DescribeStreams", body), options))

    assert describer.one("events", ends={"events": 1}, wait_ms=1)["next"] == 1


def test_an_unknown_action_is_refused(describer: Describer) -> None:
    with pytest.raises(NotImplementedError, match="DoAction has no action 'DropAll'; use DescribeStreams"):
        describer.ask({}, kind="DropAll")


def test_a_stream_that_lacks_a_partition_says_how_many_it_was_declared_with(
    describer: Describer, connection: penstock.Connection, vhost: str
) -> None:
    connection.declare_stream("events", partitions=3)
    definitions = json.loads(connection.admin.export_definitions(vhost))
    definitions["queues"] = [each for each in definitions["queues"] if each["name"] != "events-1"]
    definitions["bindings"] = [each for each in definitions["bindings"] if each["destination"] != "events-1"]
    connection.delete_stream("events")
    connection.admin.import_definitions(json.dumps(definitions).encode(), vhost)

    found = describer.ask({"streams": ["events", "events-2"]})

    assert [(each["partition"], each.get("partition_count")) for each in found] == [
        ("events-0", 3),
        ("events-2", 3),
        ("events-2", None),
    ]
    connection.declare_stream("events", partitions=3)
    assert len(describer.ask({"streams": ["events"]})) == 3
