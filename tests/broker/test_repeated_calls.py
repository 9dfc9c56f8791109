"""Calls whose connection breaks: those that only read are made again, and the others end with an error."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import grpc
import pytest

import penstock
import penstock.aio
from support import Broker
from support.stopping_proxy import StoppingProxy
from support.waiting import eventually

pytestmark = pytest.mark.parametrize("native", [True, False], ids=["native", "pure"])
SECONDS_MAX = 60


@pytest.fixture
def proxy(broker: Broker) -> Iterator[StoppingProxy]:
    with StoppingProxy(broker.grpc) as proxy:
        yield proxy


def uri_by(proxy: StoppingProxy, vhost: str) -> str:
    return f"penstock://guest:guest@127.0.0.1:{proxy.port}/{vhost}"


def break_answer(proxy: StoppingProxy, call: Callable[[], object], after_bytes: int = 0) -> "Future[object]":
    """Begin a call in a thread, and break its connection after so many bytes of the answer."""
    proxy.stop_after = after_bytes
    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(call)
        eventually(lambda: proxy.stop_after, None, SECONDS_MAX)
        proxy.hang_up()
        proxy.go()
    return future


def test_a_call_that_only_reads_is_made_again(vhost: str, native: bool, proxy: StoppingProxy) -> None:
    with penstock.connect(uri_by(proxy, vhost), native=native) as connection:
        connection.declare_queue("letters")

        listed = break_answer(proxy, connection.admin.list_queues).result(SECONDS_MAX)

        assert isinstance(listed, list)
        assert [queue.name for queue in listed] == ["letters"]
        assert proxy.connections == 2


def test_an_answer_of_which_only_a_part_came_is_asked_for_again(vhost: str, native: bool, proxy: StoppingProxy) -> None:
    with penstock.connect(uri_by(proxy, vhost), native=native) as connection:
        for number in range(200):
            connection.declare_queue(f"{'letters' * 30}.{number}")

        listed = break_answer(proxy, connection.admin.list_queues, after_bytes=20_000).result(SECONDS_MAX)

        assert isinstance(listed, list)
        assert len(listed) == 200


class Unavailable(grpc.GenericRpcHandler):
    """Answers the first question of a connection, and ends all other calls as a connection that breaks does."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def service(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        method = str(details.method).rpartition("/")[2]

        def answer(_: bytes, context: grpc.ServicerContext) -> bytes:
            if method != "GetVhostLimits":
                self.ended.append(method)
                context.abort(grpc.StatusCode.UNAVAILABLE, "socket closed")
            return b""

        return grpc.unary_unary_rpc_method_handler(answer)


def test_a_call_whose_connection_always_breaks_is_made_a_few_times(native: bool) -> None:
    handler = Unavailable()
    server = grpc.server(ThreadPoolExecutor(2), handlers=[handler])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with penstock.connect(f"penstock://guest:guest@127.0.0.1:{port}/", native=native) as connection:
            for call in (connection.admin.list_queues, lambda: connection.declare_queue("letters")):
                with pytest.raises(penstock.ConnectionLostError):
                    call()
    finally:
        server.stop(None)
    assert handler.ended == ["ListQueues"] * 4 + ["DeclareQueue"]


def test_a_call_that_only_reads_is_made_again_with_asyncio(vhost: str, native: bool, proxy: StoppingProxy) -> None:
    async def list_queues() -> list[str]:
        async with penstock.aio.connect(uri_by(proxy, vhost), native=native) as connection:
            await connection.declare_queue("letters")
            proxy.stop_after = 0
            listing = asyncio.create_task(connection.admin.list_queues())
            await asyncio.to_thread(eventually, lambda: proxy.stop_after, None, SECONDS_MAX)
            proxy.hang_up()
            proxy.go()
            return [queue.name for queue in await listing]

    assert asyncio.run(list_queues()) == ["letters"]


def test_a_call_that_may_change_something_is_not_made_again(vhost: str, native: bool, proxy: StoppingProxy) -> None:
    with penstock.connect(uri_by(proxy, vhost), native=native) as connection:
        failed = break_answer(proxy, lambda: connection.declare_queue("letters"))

        with pytest.raises(penstock.ConnectionLostError):
            failed.result(SECONDS_MAX)
        connection.declare_queue("letters")
