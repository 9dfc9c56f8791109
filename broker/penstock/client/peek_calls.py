"""Looking at a queue's ready messages, without I/O, driven as `steps` says.

Nothing is taken, and consumers notice nothing.
"""

from typing import Final

from penstock.client.steps import Steps, ask
from penstock.client.stored import Received
from penstock.v1 import messaging_pb2

__all__ = ["PeekedMessage", "peek"]

METHOD = "/penstock.v1.MessagingService/Peek"
COUNT_MAX = 1_000
"""Messages in one response."""
CALLS_MAX = 100
"""Each looks at 10,000 messages or fewer, so that no filter searches a queue of any length."""


class PeekedMessage(Received):
    """A ready message that stays in its queue; there is nothing to settle."""

    __slots__ = ("sequence",)

    def __init__(self, delivery: messaging_pb2.Delivery) -> None:
        super().__init__(delivery)
        self.sequence: Final[int] = delivery.sequence

    def __repr__(self) -> str:
        return f"<PeekedMessage {self.sequence} of {len(self.body)} bytes, routing key {self.routing_key!r}>"


def peek(
    vhost: str, queue: str, count: int, routing_key: str | None, header: tuple[str, str] | None
) -> Steps[list[PeekedMessage]]:
    found: list[PeekedMessage] = []
    position = 0
    for _ in range(CALLS_MAX):
        request = messaging_pb2.PeekRequest(
            vhost=vhost,
            queue=queue,
            count_max=min(COUNT_MAX, count - len(found)),
            position=position,
            routing_key=routing_key,
            header=header[0] if header else "",
            header_value=header[1] if header else "",
        )
        answer = yield from ask(METHOD, request, messaging_pb2.PeekResponse)
        found += map(PeekedMessage, answer.deliveries)
        position = answer.next_position
        if position == 0 or len(found) >= count:
            break
    return found
