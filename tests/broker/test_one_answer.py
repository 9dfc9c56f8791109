"""A consumer whose queue is deleted, and a connection to a virtual host that is not there: one answer each."""

import asyncio
from collections.abc import Callable
from threading import Timer

import pytest

import penstock
from support import Broker


def test_a_consumer_of_a_deleted_queue_is_cancelled(connect: Callable[[], penstock.Connection]) -> None:
    connection, other = connect(), connect()
    connection.declare_queue("doomed")
    deleting = Timer(0.2, other.delete_queue, ["doomed"])
    deleting.start()

    with pytest.raises(penstock.CancelledError, match="the broker cancelled the consumer"):
        for _ in connection.consume("doomed"):
            pass
    deleting.join()


@pytest.mark.parametrize("native", [True, False], ids=["native", "pure"])
def test_so_is_one_of_asyncio(broker: Broker, vhost: str, native: bool) -> None:
    async def run() -> None:
        async with penstock.aio.connect(broker.uri(vhost), native=native) as connection:
            await connection.declare_queue("doomed")
            asyncio.get_running_loop().call_later(0.2, lambda: deleting.append(start()))
            deleting: list[asyncio.Task[int]] = []

            def start() -> "asyncio.Task[int]":
                return asyncio.ensure_future(connection.delete_queue("doomed"))

            with pytest.raises(penstock.CancelledError, match="the broker cancelled the consumer"):
                async for _ in connection.consume("doomed"):
                    pass
            await deleting[0]

    asyncio.run(run())


@pytest.mark.parametrize("native", [True, False], ids=["native", "pure"])
def test_a_vhost_that_does_not_exist_is_told_by_connect(broker: Broker, native: bool) -> None:
    async def open_and_close() -> None:
        async with penstock.aio.connect(broker.uri("nope"), native=native):
            pass

    with pytest.raises(penstock.NotFoundError, match="vhost 'nope' not found"):
        penstock.connect(broker.uri("nope"), native=native)
    with pytest.raises(penstock.NotFoundError, match="vhost 'nope' not found"):
        asyncio.run(open_and_close())


def test_a_vhost_that_was_deleted_has_one_answer_for_every_verb(broker: Broker) -> None:
    with penstock.connect(broker.uri()) as root:
        root.admin.create_vhost("gone")
        root.admin.set_permission("guest", "gone", ".*", ".*", ".*")
        with penstock.connect(broker.uri("gone")) as connection:
            root.admin.delete_vhost("gone")
            for verb in (
                lambda: connection.declare_queue("q"),
                lambda: connection.publish(b"x", routing_key="q"),
                lambda: connection.get("q"),
                lambda: next(iter(connection.consume("q"))),
                connection.admin.list_queues,
            ):
                with pytest.raises(penstock.NotFoundError, match="vhost 'gone' not found"):
                    verb()


def test_a_user_without_permissions_is_told_so_by_the_verbs(broker: Broker, vhost: str) -> None:
    with penstock.connect(broker.uri()) as root:
        root.admin.put_user("eve", "secret", [])
        connection = penstock.connect(broker.uri(vhost, user="eve", password="secret"))
        with connection, pytest.raises(penstock.AccessRefusedError):
            connection.publish(b"x", routing_key="q")
        root.admin.delete_user("eve")
        with pytest.raises(penstock.NotAuthenticatedError):
            penstock.connect(broker.uri(vhost, user="eve", password="secret"))
