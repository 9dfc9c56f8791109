"""Dead letters over gRPC: by arguments and policies, with their history, through all kinds of exchanges, and kills."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from support import Broker
from support.waiting import eventually, found

TO_DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


@pytest.fixture
def connection(broker: Broker, vhost: str) -> Iterator[penstock.Connection]:
    with penstock.connect(broker.uri(vhost)) as connection:
        connection.declare_queue("dead")
        yield connection


def ready(connection: penstock.Connection, queue: str) -> int:
    return connection.admin.get_queue(queue).ready_count


def got(connection: penstock.Connection, queue: str, *, auto_ack: bool = True) -> penstock.Message:
    """Return the next message of a queue, which may still be on its way from another one."""
    return found(lambda: connection.get(queue, auto_ack=auto_ack), 60)


def reject(connection: penstock.Connection, queue: str) -> None:
    got(connection, queue, auto_ack=False).reject()


def deaths(message: penstock.Message) -> list[tuple[Any, ...]]:
    """Return queue, reason and count of each death."""
    entries: Any = message.properties.headers["x-death"]
    return [(entry["queue"], entry["reason"], entry["count"]) for entry in entries]


def test_a_rejected_message_moves_with_its_history(connection: penstock.Connection) -> None:
    connection.declare_queue("jobs", arguments=TO_DEAD)
    connection.declare_exchange("all", "fanout")
    connection.bind_queue("jobs", "all")
    properties = penstock.Properties(content_type="text/plain", message_id="one", headers={"own": 7})
    connection.publish(b"hello", exchange="all", routing_key="k", properties=properties)

    reject(connection, "jobs")
    message = got(connection, "dead")

    assert (message.body, message.exchange, message.routing_key) == (b"hello", "", "dead")
    assert (message.properties.content_type, message.properties.message_id) == ("text/plain", "one")
    headers: Any = message.properties.headers
    [entry] = headers["x-death"]
    assert entry.pop("time") is not None
    assert entry == {"count": 1, "reason": "rejected", "queue": "jobs", "exchange": "all", "routing-keys": ["k"]}
    assert headers["own"] == 7
    for when in ("first", "last"):
        assert headers[f"x-{when}-death-reason"] == "rejected"
        assert headers[f"x-{when}-death-queue"] == "jobs"
        assert headers[f"x-{when}-death-exchange"] == "all"
    # A dead letter counts in its queue until it has moved.
    eventually(lambda: ready(connection, "jobs"), 0)


def test_an_expired_message_loses_its_expiration_and_keeps_it_in_its_history(connection: penstock.Connection) -> None:
    connection.declare_queue("jobs", arguments=TO_DEAD)
    connection.publish(b"short", routing_key="jobs", properties=penstock.Properties(expiration="50"))

    message = got(connection, "dead")

    assert deaths(message) == [("jobs", "expired", 1)]
    entries: Any = message.properties.headers["x-death"]
    assert entries[0]["original-expiration"] == "50"
    assert message.properties.expiration is None


def test_the_oldest_messages_of_a_full_queue_move_with_the_reason_maxlen(connection: penstock.Connection) -> None:
    connection.declare_queue("last", arguments={**TO_DEAD, "x-max-length": 10})
    connection.publish_many([b"%d" % number for number in range(100)], routing_key="last")

    eventually(lambda: (ready(connection, "last"), ready(connection, "dead")), (10, 90), 60)
    letters = [connection.get("dead", auto_ack=True) for _ in range(90)]
    assert [message.body for message in letters if message] == [b"%d" % number for number in range(90)]
    assert {tuple(deaths(message)) for message in letters if message} == {(("last", "maxlen", 1),)}
    left = [connection.get("last", auto_ack=True) for _ in range(10)]
    assert [message.body for message in left if message] == [b"%d" % number for number in range(90, 100)]


def test_a_full_queue_by_bytes_moves_only_its_oldest_messages(connection: penstock.Connection) -> None:
    connection.declare_queue("bytes", arguments={**TO_DEAD, "x-max-length-bytes": 100})
    for body in (b"x" * 101, b"a" * 60, b"b" * 30, b"c" * 30):
        connection.publish(body, routing_key="bytes")

    eventually(lambda: (ready(connection, "bytes"), ready(connection, "dead")), (2, 2), 60)
    assert [message.body[:1] for message in iter(lambda: connection.get("dead", auto_ack=True), None)] == [b"x", b"a"]


def test_a_letter_waits_in_an_exchange_that_delays_messages_and_a_delayed_one_does_not_wait_again(
    connection: penstock.Connection,
) -> None:
    connection.declare_exchange("later", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    connection.bind_queue("dead", "later")
    connection.declare_queue("jobs", arguments={"x-dead-letter-exchange": "later"})
    connection.publish(b"late", routing_key="jobs", headers={"x-delay": 3_600_000})
    reject(connection, "jobs")
    eventually(lambda: (ready(connection, "jobs"), ready(connection, "dead")), (0, 1), 60)
    assert connection.get("dead") is None

    connection.declare_exchange("first", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    connection.declare_queue("held", arguments={"x-dead-letter-exchange": "later"})
    connection.bind_queue("held", "first")
    connection.publish(b"once", exchange="first", headers={"x-delay": 1})
    reject(connection, "held")
    eventually(lambda: ready(connection, "dead"), 2, 60)
    message = connection.get("dead", auto_ack=True)
    assert message is not None
    assert message.body == b"once"


def test_a_message_that_dies_again_counts_and_keeps_its_first_death(connection: penstock.Connection) -> None:
    """A get once found nothing in a queue whose letter still counted as ready, while its copy was in another log."""
    connection.declare_queue("jobs", arguments=TO_DEAD)
    connection.admin.set_policy(
        "back", "^dead$", {"dead-letter-exchange": "", "dead-letter-routing-key": "jobs"}, "queues"
    )
    connection.publish(b"x", routing_key="jobs")

    for queue in ("jobs", "dead", "jobs"):
        reject(connection, queue)
    message = got(connection, "dead")

    assert deaths(message) == [("jobs", "rejected", 2), ("dead", "rejected", 1)]
    assert message.properties.headers["x-first-death-queue"] == "jobs"
    assert message.properties.headers["x-last-death-queue"] == "jobs"


def test_a_message_does_not_expire_in_a_circle(connection: penstock.Connection, broker: Broker) -> None:
    to_jobs: dict[str, Any] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "jobs", "x-message-ttl": 1}
    connection.declare_queue("jobs", arguments={**TO_DEAD, "x-dead-letter-routing-key": "other", "x-message-ttl": 1})
    connection.declare_queue("other", arguments=to_jobs)
    connection.publish_many([b"x"] * 100, routing_key="jobs")

    eventually(lambda: ready(connection, "jobs") + ready(connection, "other"), 0, 60)
    assert ready(connection, "dead") == 0


def test_a_policy_counts_at_once_and_an_argument_overrides_it(connection: penstock.Connection) -> None:
    connection.declare_queue("plain")
    connection.declare_queue("jobs", arguments=TO_DEAD)
    connection.declare_queue("lost")
    connection.admin.set_policy(
        "lost", "^(plain|jobs)$", {"dead-letter-exchange": "", "dead-letter-routing-key": "lost"}, "queues"
    )
    for queue in ("plain", "jobs"):
        connection.publish(queue.encode(), routing_key=queue)
        reject(connection, queue)

    assert got(connection, "lost").body == b"plain"
    assert got(connection, "dead").body == b"jobs"

    connection.admin.delete_policy("lost")
    connection.publish(b"gone", routing_key="plain")
    reject(connection, "plain")
    eventually(lambda: (ready(connection, "plain"), ready(connection, "lost")), (0, 0), 60)


@pytest.mark.parametrize(
    ("kind", "binding", "arguments"),
    [
        ("topic", "a.#", None),
        ("direct", "a.b", None),
        ("headers", "", {"x-match": "all", "own": "x"}),
        ("fanout", "", None),
    ],
)
def test_letters_are_routed_by_every_kind_of_exchange(
    connection: penstock.Connection, kind: str, binding: str, arguments: dict[str, Any] | None
) -> None:
    connection.declare_exchange("dlx", kind)
    connection.bind_queue("dead", "dlx", binding, arguments=arguments)
    connection.declare_queue("jobs", arguments={"x-dead-letter-exchange": "dlx"})
    connection.declare_exchange("in", "fanout")
    connection.bind_queue("jobs", "in")
    connection.publish(b"x", exchange="in", routing_key="a.b", properties=penstock.Properties(headers={"own": "x"}))

    reject(connection, "jobs")

    assert got(connection, "dead").routing_key == "a.b"


def test_letters_take_the_alternate_exchange(connection: penstock.Connection) -> None:
    connection.declare_exchange("rest", "fanout")
    connection.bind_queue("dead", "rest")
    connection.declare_exchange("dlx", "direct", arguments={"alternate-exchange": "rest"})
    connection.declare_queue("jobs", arguments={"x-dead-letter-exchange": "dlx"})
    connection.publish(b"x", routing_key="jobs")

    reject(connection, "jobs")

    assert got(connection, "dead").exchange == "dlx"


def test_a_letter_without_a_route_is_dropped_or_stays(connection: penstock.Connection) -> None:
    nowhere = {"x-dead-letter-exchange": "none"}
    connection.declare_queue("drops", arguments=nowhere)
    connection.declare_queue("keeps", arguments={**nowhere, "x-dead-letter-strategy": "at-least-once"})
    for queue in ("drops", "keeps"):
        connection.publish(queue.encode(), routing_key=queue)
        reject(connection, queue)

    eventually(lambda: ready(connection, "drops"), 0, 60)
    connection.declare_exchange("none", "fanout")
    connection.bind_queue("dead", "none")

    assert got(connection, "dead").body == b"keeps"


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"x-dead-letter-routing-key": "k"}, "has an argument 'x-dead-letter-routing-key' and no dead-letter exchange"),
        ({"x-dead-letter-exchange": 1}, "use the name of an exchange"),
        ({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "k" * 256}, "256 bytes"),
        ({"x-dead-letter-exchange": "", "x-dead-letter-strategy": "always"}, "use at-most-once or at-least-once"),
        ({"x-delivery-limit": -2}, "write a number of deliveries, at least 0, or -1 for no limit"),
        ({"x-queue-type": "stream", "x-dead-letter-exchange": ""}, "that streams do not support"),
    ],
)
def test_arguments_are_checked(connection: penstock.Connection, arguments: dict[str, Any], rule: str) -> None:
    with pytest.raises(penstock.PenstockError, match=rule):
        connection.declare_queue("odd", arguments=arguments)


def test_a_dead_letter_exchange_needs_permissions(broker: Broker, vhost: str) -> None:
    with penstock.connect(broker.uri(vhost)) as root:
        root.admin.put_user("letters", "letters-secret")
        root.admin.set_permission("letters", configure="mine.*", write="mine.*", read="mine-.*")
    with penstock.connect(broker.uri(vhost, "letters", "letters-secret")) as own:
        with pytest.raises(penstock.PenstockError, match="write permission on exchange 'theirs'"):
            own.declare_queue("mine-1", arguments={"x-dead-letter-exchange": "theirs"})
        with pytest.raises(penstock.PenstockError, match="read permission on queue 'mine'"):
            own.declare_queue("mine", arguments={"x-dead-letter-exchange": "mine-x"})
        own.declare_queue("mine-1", arguments={"x-dead-letter-exchange": "mine-x"})


def test_a_message_that_comes_back_too_often_leaves(connection: penstock.Connection) -> None:
    connection.declare_queue("jobs", arguments={**TO_DEAD, "x-delivery-limit": 2})
    connection.publish(b"x", routing_key="jobs")

    for _ in range(3):
        message = connection.get("jobs")
        assert message is not None
        message.nack()

    assert deaths(got(connection, "dead")) == [("jobs", "delivery_limit", 1)]
    eventually(lambda: ready(connection, "jobs"), 0)


def test_letters_and_limits_are_kept_over_a_kill(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as own:
        with penstock.connect(own.uri()) as connection:
            connection.declare_queue("dead")
            connection.declare_queue("jobs", arguments={**TO_DEAD, "x-delivery-limit": 1})
            connection.publish_many([b"rejected", b"twice"], routing_key="jobs")
            reject(connection, "jobs")
            message = connection.get("jobs")
            assert message is not None
            message.nack()
            assert got(connection, "dead").body == b"rejected"
            eventually(lambda: ready(connection, "jobs"), 1, 60)
        own.kill()
        own.start()
        with penstock.connect(own.uri()) as connection:
            message = connection.get("jobs")
            assert message is not None
            message.nack()
            letter = got(connection, "dead")
            assert (letter.body, deaths(letter)) == (b"twice", [("jobs", "delivery_limit", 1)])
        # In another log than its queue, a letter is there before the message has left.
        eventually(lambda: "penstock_messages_dead_lettered_delivery_limit_total 1" in own.scrape(), True, 60)
