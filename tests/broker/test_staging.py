"""Stages through the client: whole batches once, whichever attempts are named, and permissions for them."""

from collections.abc import Iterator

import pytest

import penstock
from penstock.client.staging import Attempt, PublishedBatch
from support import Broker


@pytest.fixture
def plain(broker: Broker, vhost: str) -> Iterator[penstock.Connection]:
    """Of a user who may write to the exchange `open` and nowhere else."""
    with penstock.connect(broker.uri()) as root:
        root.admin.put_user("stager", "secret")
        root.admin.set_permission("stager", vhost, configure="^$", write="^open$", read="^$")
        with penstock.connect(broker.uri(vhost).replace("guest:guest", "stager:secret")) as connection:
            yield connection
        root.admin.delete_user("stager")


def bodies(connection: penstock.Connection, stream: str) -> list[bytes]:
    return [message.body for message in connection.stream(stream).read("first", until="next")]


def test_nobody_reads_what_is_staged_until_its_batch_is_published_whole(connection: penstock.Connection) -> None:
    connection.declare_stream("orders")
    stage = connection.stage("nightly", stream="orders")
    first = stage.stage(1, [b"a", ("key", b"b")])
    stage.stage(1, [b"a", b"x"])
    second = stage.stage(1, [b"c"])
    assert bodies(connection, "orders") == []

    published = stage.publish(1, [first, second])

    assert published == PublishedBatch(was_decided=False, stored=3, unroutable=0)
    assert bodies(connection, "orders") == [b"a", b"b", b"c"]
    assert [message.key for message in connection.stream("orders").read("first", until="next")] == [None, b"key", None]
    assert [message.exchange for message in connection.stream("orders").read("first", until="next")] == ["", "", ""]
    info = connection.admin.list_stages()[0]
    assert (info.name, info.routing_key, info.row_count, info.last_batch) == ("nightly", "orders", 0, 1)


def test_a_batch_is_published_once_and_comes_again_with_the_same_rows_only(connection: penstock.Connection) -> None:
    connection.declare_stream("orders")
    stage = connection.stage("nightly", stream="orders")
    first = stage.stage(1, [("k", b"a"), b"b"])
    stage.publish(1, [first])

    for attempts in ([first], [stage.stage(1, [b"b"]), stage.stage(1, [("k", b"a")])]):
        again = stage.publish(1, attempts)
        assert again.was_decided
        assert again.stored == 0
    changed: list[list[bytes | tuple[str, bytes]]] = [[b"a", b"b"], [("k", b"a"), b"c"], [("k", b"a")]]
    for rows in changed:
        with pytest.raises(penstock.PreconditionFailedError, match="batch 1 of this stage is not the one that was"):
            stage.publish(1, [stage.stage(1, rows)])

    assert bodies(connection, "orders") == [b"a", b"b"]


def test_rows_keep_keys_headers_and_routing_on_their_way_to_a_partitioned_stream(
    connection: penstock.Connection,
) -> None:
    connection.declare_stream("clicks", partitions=3)
    rows = [(b"key-%d" % (number % 7), b"%d" % number) for number in range(2_000)]
    stage = connection.stage("s", stream="clicks")

    attempt = stage.stage(0, rows, headers={"origin": "test"})
    assert (attempt.count, stage.publish(0, [attempt]).stored) == (2_000, 2_000)

    found = list(connection.stream("clicks").read("first", until="next"))
    assert sorted((message.key, message.body) for message in found) == sorted(rows)
    assert {message.headers["origin"] for message in found} == {"test"}
    by_key = {message.key: message.partition for message in found}
    assert all(by_key[message.key] == message.partition for message in found)


def test_a_batch_with_rows_missing_is_refused_and_nothing_of_it_is_published(connection: penstock.Connection) -> None:
    connection.declare_stream("orders")
    stage = connection.stage("nightly", stream="orders")
    kept, dropped = stage.stage(1, [b"a"]), stage.stage(1, [b"b", b"c"])
    assert stage.discard(1, [dropped]) == 2

    with pytest.raises(penstock.PreconditionFailedError, match="other rows"):
        stage.publish(1, [kept, dropped])
    assert bodies(connection, "orders") == []

    stage.publish(1, [kept])
    assert (bodies(connection, "orders"), stage.discard(1)) == ([b"a"], 0)


def test_a_stage_belongs_to_its_target(connection: penstock.Connection) -> None:
    connection.declare_stream("orders")
    connection.declare_stream("others")
    connection.stage("s", stream="orders").stage(1, [b"a"])

    with pytest.raises(penstock.PreconditionFailedError, match="stage-routing-key"):
        connection.stage("s", stream="others").stage(1, [b"a"])
    with pytest.raises(penstock.NotFoundError):
        connection.stage("t", stream="nothing").stage(1, [b"a"])


def test_who_may_not_write_to_the_target_may_not_use_its_stages(
    connection: penstock.Connection, plain: penstock.Connection
) -> None:
    connection.declare_exchange("closed")
    connection.declare_exchange("open")
    connection.stage("s", exchange="closed").stage(1, [b"a"])

    stage = plain.stage("s", exchange="closed")
    for refused in (
        lambda: stage.stage(1, [b"b"]),
        lambda: stage.publish(9, []),
        lambda: stage.discard(1),
        lambda: plain.admin.delete_stage("s"),
    ):
        with pytest.raises(penstock.AccessRefusedError):
            refused()

    mine = plain.stage("mine", exchange="open")
    assert mine.publish(1, [mine.stage(1, [b"c"])]).unroutable == 1
    assert plain.admin.delete_stage("mine") == 0


def test_a_stage_is_hidden_from_lists_and_exports_and_cannot_be_declared(
    connection: penstock.Connection, broker: Broker, vhost: str
) -> None:
    connection.declare_stream("orders")
    connection.stage("s", stream="orders").stage(1, [b"a", b"b"])

    assert [stream.name for stream in connection.admin.list_streams()] == ["orders"]
    assert b"amq.stage" not in connection.admin.export_definitions(vhost)
    with pytest.raises(penstock.AccessRefusedError, match="reserved"):
        connection.declare_stream("amq.stage.mine")
    with (
        connection.stream("orders").publisher("amq.stage/1") as publisher,
        pytest.raises(penstock.InvalidArgumentError, match="own"),
    ):
        publisher.publish(b"x")
    assert connection.admin.delete_stage("s") == 2
    assert connection.admin.list_stages() == []


def test_a_stage_that_was_ended_is_not_made_anew_by_a_late_task(
    connection: penstock.Connection, plain: penstock.Connection
) -> None:
    connection.declare_stream("orders")
    connection.stage("job", stream="orders").stage(1, [b"a"])
    assert connection.admin.delete_stage("job", ended=True) == 1
    with pytest.raises(penstock.NotFoundError):
        connection.admin.delete_stage("unmade", ended=True)

    for name in ("job", "unmade"):
        with pytest.raises(penstock.PreconditionFailedError, match=f"stage '{name}' in vhost .* was ended: its job is"):
            connection.stage(name, stream="orders").stage(1, [b"late"])
    assert connection.admin.list_stages() == []
    connection.declare_exchange("open", "fanout")
    assert plain.stage("job", exchange="open").stage(1, [b"of another user"]).count == 1
    assert connection.stage("another", stream="orders").stage(1, [b"a"]).count == 1
    connection.admin.delete_stage("another")
    assert connection.stage("another", stream="orders").stage(1, [b"a"]).count == 1, "it was deleted and not ended"


def test_rows_of_a_larger_attempt_go_with_several_calls(connection: penstock.Connection) -> None:
    connection.declare_stream("orders")
    stage = connection.stage("nightly", stream="orders")

    attempt = stage.stage(3, (b"%06d" % number * 100 for number in range(6_000)))

    assert attempt.count == 6_000
    assert stage.publish(3, [attempt]).stored == 6_000
    assert [body[:6] for body in bodies(connection, "orders")] == [b"%06d" % number for number in range(6_000)]


def test_an_attempt_without_rows_is_nothing_to_publish(connection: penstock.Connection) -> None:
    connection.declare_stream("orders")
    stage = connection.stage("nightly", stream="orders")

    empty = stage.stage(1, [])

    assert empty.count == 0
    assert stage.publish(1, [empty, Attempt(7, 0)]) == PublishedBatch(was_decided=False, stored=0, unroutable=0)


def test_names_of_producers_are_listed_and_deleted(connection: penstock.Connection) -> None:
    connection.declare_stream("orders")
    with connection.stream("orders").publisher("monday") as publisher:
        publisher.publish(b"a", sequence=7)
        assert [(one.name, one.sequence, one.is_open) for one in connection.admin.list_producers()] == [
            ("monday", 7, True)
        ]

    assert connection.admin.delete_producer("monday")
    assert not connection.admin.delete_producer("monday")
    assert connection.admin.list_producers() == []
    with connection.stream("orders").publisher("monday") as publisher:
        publisher.publish(b"a", sequence=7)
    assert bodies(connection, "orders") == [b"a", b"a"]
