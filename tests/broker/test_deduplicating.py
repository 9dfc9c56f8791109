"""Connections that deduplicate, for both transports: what is sent again is stored once, and a refusal stops nothing."""

import asyncio
from collections.abc import Iterator

import pytest

import penstock
import penstock.aio
from support import Broker
from support.stopping_proxy import StoppingProxy

pytestmark = pytest.mark.parametrize("native", [True, False], ids=["native", "pure"])
COUNT = 3_000


@pytest.fixture
def root(broker: Broker, vhost: str) -> Iterator[penstock.Connection]:
    with penstock.connect(broker.uri(vhost)) as connection:
        connection.declare_queue("letters")
        yield connection


def letters(root: penstock.Connection) -> list[bytes]:
    found = []
    while (message := root.get("letters", auto_ack=True)) is not None:
        found.append(message.body)
    return found


def test_a_refused_message_stops_no_later_one(
    broker: Broker, vhost: str, root: penstock.Connection, native: bool
) -> None:
    with penstock.connect(broker.uri(vhost), native=native, deduplicate=True) as connection:
        connection.publish(b"1", routing_key="letters")
        with pytest.raises(penstock.NotFoundError):
            connection.publish(b"2", exchange="missing")
        with pytest.raises(penstock.ReturnedError):
            connection.publish(b"3", routing_key="nowhere", mandatory=True)
        connection.publish_many([b"4", b"5"], routing_key="letters")

        assert [producer.name[:7] for producer in root.admin.list_producers()] == ["client/"]
    assert letters(root) == [b"1", b"4", b"5"]
    assert root.admin.list_producers() == []


def test_refused_messages_among_many_in_flight_fail_alone(
    broker: Broker, vhost: str, root: penstock.Connection, native: bool
) -> None:
    async def publish() -> list[int]:
        async with penstock.aio.connect(broker.uri(vhost), native=native, deduplicate=True) as connection:
            futures = [
                connection.publish(b"%d" % number, exchange="" if number % 50 else "missing", routing_key="letters")
                for number in range(1_000)
            ]
            answers = await asyncio.gather(*futures, return_exceptions=True)
        return [number for number, answer in enumerate(answers) if answer is not None]

    assert asyncio.run(publish()) == list(range(0, 1_000, 50))
    assert letters(root) == [b"%d" % number for number in range(1_000) if number % 50]


def test_what_is_sent_again_after_broken_connections_is_stored_once_and_in_order(
    broker: Broker, vhost: str, root: penstock.Connection, native: bool
) -> None:
    def bodies(proxy: StoppingProxy) -> Iterator[bytes]:
        for number in range(COUNT):
            if number % 1_000 == 500:
                proxy.hang_up()
            yield b"%d" % number

    with StoppingProxy(broker.grpc) as proxy:
        uri = f"penstock://guest:guest@127.0.0.1:{proxy.port}/{vhost}"
        with penstock.connect(uri, native=native, deduplicate=True) as connection:
            assert connection.publish_many(bodies(proxy), routing_key="letters") == COUNT

    assert letters(root) == [b"%d" % number for number in range(COUNT)]


def test_a_user_may_not_give_up_the_name_of_another_one(
    broker: Broker, vhost: str, root: penstock.Connection, native: bool
) -> None:
    root.admin.put_user("anna", "secret")
    root.admin.set_permission("anna", vhost, configure=".*", write=".*", read=".*")
    with penstock.connect(broker.uri(vhost, "anna", "secret"), native=native) as anna:
        root.declare_stream("lines")
        for connection, name in ((root, "of-guest"), (anna, "of-anna")):
            with connection.stream("lines").publisher(name) as publisher:
                publisher.publish(b"first")

        with pytest.raises(penstock.AccessRefusedError):
            anna.admin.delete_producer("of-guest")
        assert anna.admin.delete_producer("of-anna")
    root.admin.delete_user("anna")
