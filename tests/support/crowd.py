"""Many concurrent calls and consumers from one event loop, on plain grpcio: the start of a large client.

Calls are pipelined over one connection. Consumers are spread over as many connections as requested; each reports its
messages, and acknowledges only when told to.
"""

import asyncio
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

import grpc.aio
from google.protobuf.message import Message

from penstock.v1 import messaging_pb2 as messaging

__all__ = ["Crowd", "Member", "pipelined"]

GUEST = (("authorization", "Basic Z3Vlc3Q6Z3Vlc3Q="),)
SERVICE = "/penstock.v1.AdminService/"
CONSUME = "/penstock.v1.MessagingService/Consume"
WIDTH = 1_000
OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)


def pipelined(address: str, method: str, requests: Iterable[Message], width: int = WIDTH) -> int:
    """Make unary calls over one connection, `width` of them at a time; return their number. Raises a refusal."""
    return asyncio.run(_pipelined(address, method, requests, width))


async def _pipelined(address: str, method: str, requests: Iterable[Message], width: int) -> int:
    count = 0
    waiting = iter(requests)
    async with grpc.aio.insecure_channel(address, options=OWN_CONNECTION) as channel:
        call: Callable[..., Any] = channel.unary_unary(SERVICE + method)

        async def work() -> None:
            nonlocal count
            for request in waiting:
                await call(request.SerializeToString(), metadata=GUEST)
                count += 1

        await asyncio.gather(*(work() for _ in range(width)))
    return count


class Member:
    """One consumer of a crowd."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.held: list[int] = []

    async def open(self, vhost: str, queue: str, prefetch: int) -> None:
        opening = messaging.ConsumeOpen(vhost=vhost, queue=queue, prefetch=prefetch)
        await self._stream.write(messaging.ConsumeRequest(open=opening).SerializeToString())
        await self._read()

    async def receive(self) -> list[int]:
        """Return the numbers of the next messages."""
        response = await self._read()
        numbers = [delivery.sequence for delivery in response.deliveries.deliveries]
        self.held += numbers
        return numbers

    async def acknowledge(self) -> None:
        settlement = messaging.Settlement(outcome=messaging.OUTCOME_ACK)
        for number in self.held:
            settlement.ranges.add(first=number, last=number)
        self.held = []
        await self._stream.write(messaging.ConsumeRequest(settle=settlement).SerializeToString())

    def leave(self) -> None:
        self._stream.cancel()

    async def _read(self) -> messaging.ConsumeResponse:
        content = await self._stream.read()
        assert isinstance(content, bytes), "the stream ended"
        return messaging.ConsumeResponse.FromString(content)


class Crowd:
    """A number of consumers of one queue on `connection_count` connections, all of them opened on entering."""

    def __init__(self, address: str, vhost: str, queue: str, count: int, connection_count: int) -> None:
        self._address, self._vhost, self._queue = address, vhost, queue
        self._count, self._connection_count = count, connection_count
        self._channels: list[grpc.aio.Channel] = []
        self.members: list[Member] = []

    async def __aenter__(self) -> Self:
        self._channels = [
            grpc.aio.insecure_channel(self._address, options=OWN_CONNECTION) for _ in range(self._connection_count)
        ]
        for number in range(self._count):
            stream: Callable[..., Any] = self._channels[number % self._connection_count].stream_stream(CONSUME)
            self.members.append(Member(stream(metadata=GUEST)))
        openings = iter(self.members)

        async def work() -> None:
            for member in openings:
                await member.open(self._vhost, self._queue, prefetch=1)

        await asyncio.gather(*(work() for _ in range(WIDTH)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for channel in self._channels:
            await channel.close()
