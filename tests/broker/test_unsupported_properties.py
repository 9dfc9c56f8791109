"""Properties that have no effect yet are refused: by the client, and by the broker on each of its ways in."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

import penstock
from penstock.v1 import message_pb2, staging_pb2
from penstock.v1 import messaging_pb2 as wire
from support import Broker

GUEST = (("authorization", "Basic Z3Vlc3Q6Z3Vlc3Q="),)
PUBLISH = "/penstock.v1.MessagingService/Publish"
STAGE = "/penstock.v1.StagingService/Stage"
UNIMPLEMENTED = 12
NAMES = {"priority": 5}


@pytest.fixture(params=sorted(NAMES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def queue(connection: penstock.Connection) -> str:
    return connection.declare_queue("jobs").name


def test_the_client_refuses_it_before_anything_is_sent(connection: penstock.Connection, queue: str, name: str) -> None:
    properties = penstock.Properties(**{name: NAMES[name]})  # type: ignore[arg-type]
    stream = connection.declare_stream("events").name
    ways: list[Callable[[], object]] = [
        lambda: connection.publish(b"x", routing_key=queue, properties=properties),
        lambda: connection.publish_many([b"x"], routing_key=queue, properties=properties),
        lambda: connection.stream(stream).publish(b"x", properties=properties),
        lambda: connection.stage("s", stream=stream).stage(1, [b"x"], properties),
    ]

    for way in ways:
        with pytest.raises(penstock.NotSupportedError, match=f"the property '{name}' is not supported yet"):
            way()
    connection.publish(b"y", routing_key=queue)
    assert connection.admin.get_queue(queue).ready_count == 1


def test_the_asyncio_client_refuses_it(broker: Broker, vhost: str, name: str) -> None:
    async def run() -> None:
        async with penstock.aio.connect(broker.uri(vhost)) as connection:
            properties: Any = penstock.Properties(**{name: NAMES[name]})  # type: ignore[arg-type]
            with pytest.raises(penstock.NotSupportedError, match=f"the property '{name}' is not supported yet"):
                await connection.publish(b"x", routing_key="jobs", properties=properties)

    asyncio.run(run())


@pytest.fixture
def channel(broker: Broker) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(broker.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield channel


def test_the_broker_rejects_such_a_message_and_stores_the_others(
    channel: grpc.Channel, vhost: str, connection: penstock.Connection, queue: str, name: str
) -> None:
    odd = message_pb2.Properties(**{name: NAMES[name]})  # type: ignore[arg-type]
    messages = [
        wire.Message(body=b"one"),
        wire.Message(body=b"odd", properties=odd),
        wire.Message(body=b"two"),
    ]
    opening = wire.PublishRequest(open=wire.PublishOpen(vhost=vhost, durability=wire.DURABILITY_OS))
    batch = wire.PublishRequest(batch=wire.PublishBatch(routing_key=queue, messages=messages))
    method: Callable[..., Iterator[wire.PublishResponse]] = channel.stream_stream(
        PUBLISH, wire.PublishRequest.SerializeToString, wire.PublishResponse.FromString
    )

    answers = list(method(iter((opening, batch)), metadata=GUEST, timeout=60))

    (rejected,) = [each for answer in answers for each in answer.rejected]
    assert (rejected.first, rejected.last, rejected.code) == (2, 2, UNIMPLEMENTED)
    assert rejected.reason == f"the property '{name}' is not supported yet; publish without it"
    assert connection.admin.get_queue(queue).ready_count == 2


@pytest.mark.parametrize(("name", "value"), [("priority", 5), ("expiration", "1000")])
def test_the_broker_refuses_to_stage_such_a_row(
    channel: grpc.Channel, vhost: str, connection: penstock.Connection, name: str, value: object
) -> None:
    connection.declare_stream("events")
    odd = message_pb2.Properties(**{name: value})  # type: ignore[arg-type]
    target = staging_pb2.StageTarget(vhost=vhost, stage="s", stream="events")
    request = staging_pb2.StageRequest(target=target, batch=1)
    request.rows.messages.add(body=b"x", properties=odd)
    call: Callable[..., staging_pb2.StageResponse] = channel.unary_unary(
        STAGE, staging_pb2.StageRequest.SerializeToString, staging_pb2.StageResponse.FromString
    )

    with pytest.raises(grpc.RpcError, match=f"the property '{name}' is not supported yet"):
        call(request, metadata=GUEST, timeout=60)
