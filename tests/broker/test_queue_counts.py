"""Counts of a queue, from which rates are measured: published, delivered and settled messages."""

import penstock
from support import eventually


def counts(connection: penstock.Connection, name: str) -> tuple[int, int, int]:
    queue = connection.admin.get_queue(name)
    return queue.published_count, queue.delivered_count, queue.settled_count


def test_a_queue_counts_messages_in_and_out(connection: penstock.Connection) -> None:
    connection.declare_queue("jobs")
    assert counts(connection, "jobs") == (0, 0, 0)

    connection.publish_many([b"x"] * 10, routing_key="jobs")
    assert counts(connection, "jobs") == (10, 0, 0)

    with connection.consume("jobs", prefetch=4) as messages:
        for _, message in zip(range(3), messages, strict=False):
            message.ack()
        # An ack makes room in the prefetch for another delivery.
        eventually(lambda: counts(connection, "jobs"), (10, 7, 3))
    assert connection.get("jobs", auto_ack=True) is not None
    assert counts(connection, "jobs") == (10, 8, 4)

    connection.purge_queue("jobs")
    assert counts(connection, "jobs") == (10, 8, 10)


def test_a_redelivered_message_counts_as_two_deliveries(connection: penstock.Connection) -> None:
    connection.declare_queue("jobs")
    connection.publish(b"x", routing_key="jobs")

    for _ in range(2):
        message = connection.get("jobs")
        assert message is not None
        message.nack()

    eventually(lambda: counts(connection, "jobs"), (1, 2, 0))


def test_a_stream_counts_what_each_reader_gets(connection: penstock.Connection) -> None:
    connection.declare_stream("clicks")
    connection.publish_many([b"x"] * 5, routing_key="clicks")

    for readers in (1, 2):
        assert len(list(connection.stream("clicks").read("first", until="next"))) == 5
        assert counts(connection, "clicks") == (5, 5 * readers, 0)


def test_a_reserved_message_counts_as_delivered(connection: penstock.Connection) -> None:
    connection.declare_queue("orders")
    connection.publish_many([b"x"] * 10, routing_key="orders")

    connection.reserve_lease("orders", "warm", 1, messages_max=4)
    assert counts(connection, "orders") == (10, 4, 0)

    connection.ack_leases("orders", "warm", 1)
    assert counts(connection, "orders") == (10, 4, 4)
