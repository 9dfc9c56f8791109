"""A consumer whose queue is deleted, and a connection to a virtual host that is not there: one answer each."""

import asyncio
from threading import Timer

import pytest

import penstock
from broker.conftest import Connect
from support import Broker


def test_a_consumer_of_a_deleted_queue_is_cancelled(connect: Connect) -> None:
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
