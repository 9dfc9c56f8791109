"""A client of generated stubs, which knows nothing of clusters and stays with one broker."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, Final

import grpc

from penstock.client.errors import PenstockError, from_status
from penstock.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    message_pb2,
    messaging_pb2,
    messaging_pb2_grpc,
    streams_pb2,
    streams_pb2_grpc,
)

__all__ = ["FOLLOWS", "GUEST", "Call", "PlainClient", "plain_client", "refusal_of"]

GUEST: Final = (("authorization", "Basic Z3Vlc3Q6Z3Vlc3Q="),)
FOLLOWS: Final = ("penstock-follows", "1")
SECONDS_MAX = 60
OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]


class PlainClient:
    def __init__(self, channel: grpc.Channel, metadata: tuple[tuple[str, str], ...]) -> None:
        self.metadata = metadata
        self.messages = messaging_pb2_grpc.MessagingServiceStub(channel)
        self.streams = streams_pb2_grpc.StreamServiceStub(channel)
        self.admin = admin_pb2_grpc.AdminServiceStub(channel)

    def ask(self, method: Callable[..., Any], request: Any) -> Any:
        return method(request, metadata=self.metadata, timeout=SECONDS_MAX)

    def declare(self, queue: str) -> None:
        self.ask(self.admin.DeclareQueue, admin_pb2.DeclareQueueRequest(queue={"name": queue, "durable": True}))

    def declare_stream(self, name: str) -> None:
        self.ask(self.streams.DeclareStream, streams_pb2.DeclareStreamRequest(name=name))

    def delete_stream(self, name: str) -> None:
        self.ask(self.streams.DeleteStream, streams_pb2.DeleteStreamRequest(name=name))

    def purge(self, queue: str) -> int:
        return int(self.ask(self.admin.PurgeQueue, admin_pb2.PurgeQueueRequest(name=queue)).dropped_count)

    def get(self, queue: str, count_max: int = 1) -> list[messaging_pb2.Delivery]:
        request = messaging_pb2.GetRequest(queue=queue, count_max=count_max)
        return list(self.ask(self.messages.Get, request).deliveries)

    def settle(self, queue: str, *deliveries: messaging_pb2.Delivery) -> int:
        request = messaging_pb2.SettleRequest(queue=queue, settlement=acks(deliveries))
        return int(self.ask(self.messages.Settle, request).settled_count)

    def publishing(self) -> "Call":
        call = Call(self, self.messages.Publish)
        call.send(messaging_pb2.PublishRequest(open={}))
        return call

    def publish(self, queue: str, *bodies: bytes) -> None:
        """Publish, and wait for the confirms."""
        call = self.publishing()
        call.publish(queue, *bodies)
        call.until_confirmed(len(bodies))
        call.end()

    def consuming(self, queue: str) -> "Call":
        call = Call(self, self.messages.Consume)
        call.send(messaging_pb2.ConsumeRequest(open={"queue": queue}))
        return call

    def reading(self, stream: str, **fields: Any) -> "Call":
        """Begin to read a stream from its first message on; `fields` are further ones of `ReadOpen`."""
        call = Call(self, self.streams.Read)
        opening = {"partition": stream, "start": {"place": streams_pb2.PLACE_FIRST}, **fields}
        call.send(streams_pb2.ReadRequest(open=opening))
        return call


class Call:
    """A call of two streams, which is open until `end`."""

    def __init__(self, client: PlainClient, method: Callable[..., Any]) -> None:
        self._requests: SimpleQueue[Any] = SimpleQueue()
        self.answers = method(iter(self._requests.get, None), metadata=client.metadata, timeout=SECONDS_MAX)

    def send(self, request: Any) -> None:
        self._requests.put(request)

    def end(self) -> None:
        self._requests.put(None)

    def headers(self) -> dict[str, str]:
        return dict(self.answers.initial_metadata())

    def publish(self, queue: str, *bodies: bytes) -> None:
        messages = [messaging_pb2.Message(body=body) for body in bodies]
        self.send(messaging_pb2.PublishRequest(batch={"routing_key": queue, "messages": messages}))

    def until_confirmed(self, count: int) -> None:
        while count > 0:
            count -= sum(each.last - each.first + 1 for each in next(self.answers).confirmed)

    def deliveries(self, count: int) -> list[messaging_pb2.Delivery]:
        """Return so many deliveries, or more, once they are there."""
        found: list[messaging_pb2.Delivery] = []
        while len(found) < count:
            found += next(self.answers).deliveries.deliveries
        return found

    def ack(self, *deliveries: messaging_pb2.Delivery) -> None:
        self.send(messaging_pb2.ConsumeRequest(settle=acks(deliveries)))


def acks(deliveries: Sequence[messaging_pb2.Delivery]) -> messaging_pb2.Settlement:
    ranges = [message_pb2.Range(first=one.sequence, last=one.sequence) for one in deliveries]
    return messaging_pb2.Settlement(ranges=ranges, outcome=messaging_pb2.OUTCOME_ACK)


@contextmanager
def plain_client(address: str, metadata: tuple[tuple[str, str], ...] = GUEST) -> Iterator[PlainClient]:
    with grpc.insecure_channel(address, options=OPTIONS) as channel:
        yield PlainClient(channel, metadata)


def refusal_of(act: Callable[[], object]) -> PenstockError:
    """Return the refusal of what has to be refused."""
    try:
        act()
    except grpc.RpcError as error:
        call: Any = error
        found = dict(call.trailing_metadata() or ())
        return from_status(call.code().value[0], call.details(), found.get("grpc-status-details-bin", b""))
    raise AssertionError("it was not refused")
