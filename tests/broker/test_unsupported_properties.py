"""Properties of rows that would have no effect are refused."""

from collections.abc import Callable, Iterator

import grpc
import pytest

import penstock
from penstock.v1 import message_pb2, staging_pb2
from support import Broker

GUEST = (("authorization", "Basic Z3Vlc3Q6Z3Vlc3Q="),)
STAGE = "/penstock.v1.StagingService/Stage"


@pytest.fixture
def channel(broker: Broker) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(broker.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield channel


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
