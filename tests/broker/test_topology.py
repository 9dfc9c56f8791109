"""Topology end to end: exchanges, queues and bindings as a client declares and sees them."""

from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from support import Broker, eventually

Connect = Callable[[], penstock.Connection]


def bodies(connection: penstock.Connection, queue: str) -> list[bytes]:
    """Return all ready bodies of the queue."""
    found = []
    while (message := connection.get(queue, auto_ack=True)) is not None:
        found.append(message.body)
    return found


def queue_names(connection: penstock.Connection) -> list[str]:
    return [queue.name for queue in connection.admin.list_queues()]


def test_a_topic_exchange_matches_words(connection: penstock.Connection) -> None:
    connection.declare_exchange("web", "topic")
    for queue, pattern in {"all": "web.#", "errors": "web.5xx.*", "gets": "web.*.get"}.items():
        connection.declare_queue(queue)
        connection.bind_queue(queue, "web", pattern)

    for key in ("web.2xx.get", "web.5xx.post", "web", "other.5xx.get"):
        connection.publish(key.encode(), exchange="web", routing_key=key)

    assert bodies(connection, "all") == [b"web.2xx.get", b"web.5xx.post", b"web"]
    assert bodies(connection, "errors") == [b"web.5xx.post"]
    assert bodies(connection, "gets") == [b"web.2xx.get"]


def test_a_headers_exchange_matches_all_or_any(connection: penstock.Connection) -> None:
    for queue, rule in {"both": "all", "either": "any"}.items():
        connection.declare_queue(queue)
        connection.bind_queue(queue, "amq.headers", arguments={"x-match": rule, "colour": "red", "size": 3})

    connection.publish(b"1", exchange="amq.headers", headers={"colour": "red", "size": 3})
    connection.publish(b"2", exchange="amq.headers", headers={"colour": "red"})
    connection.publish(b"3", exchange="amq.headers", headers={"colour": "blue"})

    assert bodies(connection, "both") == [b"1"]
    assert bodies(connection, "either") == [b"1", b"2"]


def test_a_message_goes_on_through_a_bound_exchange_once(connection: penstock.Connection) -> None:
    connection.declare_exchange("outer", "fanout")
    connection.declare_exchange("inner", "direct")
    connection.declare_queue("jobs")
    connection.bind_exchange("inner", "outer")
    connection.bind_queue("jobs", "inner", "key")
    connection.bind_queue("jobs", "outer")

    connection.publish(b"a", exchange="outer", routing_key="key")

    assert bodies(connection, "jobs") == [b"a"]


def test_what_matches_nothing_goes_to_the_alternate_exchange(connection: penstock.Connection) -> None:
    connection.declare_exchange("rest", "fanout")
    connection.declare_exchange("orders", "direct", arguments={"alternate-exchange": "rest"})
    connection.declare_queue("unrouted")
    connection.bind_queue("unrouted", "rest")

    connection.publish(b"a", exchange="orders", routing_key="unknown", mandatory=True)

    assert bodies(connection, "unrouted") == [b"a"]


def test_an_unbound_queue_gets_nothing_more(connection: penstock.Connection) -> None:
    connection.declare_queue("jobs")
    connection.bind_queue("jobs", "amq.direct", "key")
    connection.publish(b"a", exchange="amq.direct", routing_key="key")

    connection.unbind_queue("jobs", "amq.direct", "key")
    connection.publish(b"b", exchange="amq.direct", routing_key="key")

    assert bodies(connection, "jobs") == [b"a"]


def test_declaring_again_is_answered_and_a_difference_is_refused_by_its_name(connection: penstock.Connection) -> None:
    connection.declare_queue("jobs", durable=True)

    assert connection.declare_queue("jobs", durable=True).name == "jobs"
    with pytest.raises(penstock.PreconditionFailedError, match="durable"):
        connection.declare_queue("jobs", durable=False)


def test_an_argument_of_a_feature_that_is_lacking_is_refused_by_its_name(connection: penstock.Connection) -> None:
    with pytest.raises(penstock.RefusedError, match="x-persist-ms"):
        connection.declare_exchange("events", "topic", arguments={"x-persist-ms": 1})

    assert "events" not in {exchange.name for exchange in connection.admin.list_exchanges()}


def test_an_argument_of_the_broker_s_own_is_refused_by_its_name(connection: penstock.Connection) -> None:
    with pytest.raises(penstock.RefusedError, match="x-penstock-id"):
        connection.declare_queue("jobs", arguments={"x-penstock-id": 1})

    assert queue_names(connection) == []


def test_an_argument_that_no_broker_knows_is_stored_and_shown(connection: penstock.Connection) -> None:
    connection.declare_queue("jobs", arguments={"x-no-such-thing": 1})

    (queue,) = connection.admin.list_queues()
    assert dict(queue.arguments) == {"x-no-such-thing": 1}


def test_a_queue_without_a_name_gets_one(connection: penstock.Connection) -> None:
    name = connection.declare_queue("").name

    assert name.startswith("amq.gen-")
    assert queue_names(connection) == [name]


def test_an_exclusive_queue_is_locked_to_its_connection_and_ends_with_it(connect: Connect) -> None:
    owner, other = connect(), connect()
    owner.declare_queue("mine", durable=False, exclusive=True)

    with pytest.raises(penstock.LockedError):
        other.get("mine")

    owner.close()
    eventually(lambda: queue_names(other), [])


def test_an_auto_delete_queue_ends_with_its_last_consumer(connect: Connect) -> None:
    consumer, other = connect(), connect()
    other.declare_queue("shared", auto_delete=True)
    consumption = consumer.consume("shared")
    eventually(lambda: other.admin.get_queue("shared").consumer_count, 1)

    consumption.close()

    eventually(lambda: queue_names(other), [])


def test_an_exclusive_consumer_refuses_others(connect: Connect) -> None:
    first, second = connect(), connect()
    first.declare_queue("jobs")
    with first.consume("jobs", exclusive=True):
        eventually(lambda: first.admin.get_queue("jobs").consumer_count, 1)

        with pytest.raises(penstock.RefusedError):
            next(iter(second.consume("jobs", idle_timeout=10)))


def test_consumers_of_a_deleted_queue_are_told(connect: Connect) -> None:
    consumer, other = connect(), connect()
    other.declare_queue("jobs")
    consumption = consumer.consume("jobs", idle_timeout=30)
    eventually(lambda: other.admin.get_queue("jobs").consumer_count, 1)

    other.delete_queue("jobs")

    with pytest.raises(penstock.PenstockError, match="jobs"):
        next(iter(consumption))


def test_a_queue_that_must_be_empty_is_not_deleted(connection: penstock.Connection) -> None:
    connection.declare_queue("jobs")
    connection.publish(b"a", routing_key="jobs")

    with pytest.raises(penstock.PreconditionFailedError, match="jobs"):
        connection.delete_queue("jobs", if_empty=True)

    assert connection.delete_queue("jobs") == 1


def test_a_queue_that_was_to_be_empty_and_unused_takes_messages_when_it_stays(connection: penstock.Connection) -> None:
    for arguments in ({}, {"x-dedicated": True}):
        connection.declare_queue("jobs", arguments=arguments)
        with connection.consume("jobs", idle_timeout=30) as messages:
            eventually(lambda: connection.admin.get_queue("jobs").consumer_count, 1)
            with pytest.raises(penstock.PreconditionFailedError, match="consumers"):
                connection.delete_queue("jobs", if_empty=True, if_unused=True)
            connection.publish(b"a", routing_key="jobs", mandatory=True)
            next(iter(messages)).ack()

        eventually(lambda: connection.admin.get_queue("jobs").unacked_count, 0)
        connection.delete_queue("jobs", if_empty=True)
        connection.declare_queue("jobs", arguments=arguments)
        connection.publish(b"b", routing_key="jobs", mandatory=True)
        assert connection.delete_queue("jobs") == 1


def test_vhosts_do_not_see_each_other(broker: Broker, connection: penstock.Connection) -> None:
    connection.declare_queue("only-here")

    with penstock.connect(broker.uri()) as elsewhere:
        assert "only-here" not in queue_names(elsewhere)
        with pytest.raises(penstock.NotFoundError, match="only-here"):
            elsewhere.get("only-here")


def test_long_lists_come_whole(connection: penstock.Connection) -> None:
    names = [f"queue-{number:04}" for number in range(2_100)]
    for name in names:
        connection.declare_queue(name, durable=False)

    assert queue_names(connection) == names


def test_definitions_make_an_empty_broker_the_same(connection: penstock.Connection, vhost: str, tmp_path: Path) -> None:
    connection.declare_exchange("web", "topic", arguments={"alternate-exchange": "amq.fanout"})
    connection.declare_queue("errors", arguments={"x-durability": "os"})
    connection.bind_queue("errors", "web", "web.5xx.#")
    connection.bind_exchange("amq.fanout", "web", "#", arguments={"note": "all"})
    document = connection.admin.export_definitions()

    with Broker(tmp_path / "data") as second, penstock.connect(second.uri()) as root:
        root.admin.import_definitions(document)
        with penstock.connect(second.uri(vhost)) as copy:
            assert copy.admin.list_queues() == connection.admin.list_queues()
            assert copy.admin.list_exchanges() == connection.admin.list_exchanges()
            assert sorted(map(str, copy.admin.list_bindings())) == sorted(map(str, connection.admin.list_bindings()))
            copy.publish(b"a", exchange="web", routing_key="web.5xx.get")
            assert bodies(copy, "errors") == [b"a"]
        again = root.admin.export_definitions(vhost)
    assert again == connection.admin.export_definitions(vhost)
