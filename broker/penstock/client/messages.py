"""A message as its consumer sees it.

Wrapping one must cost next to nothing, so all but the body is read from the delivery when asked for. Settling is the
delivery's business: a stream gathers settlements, a message from `get` settles by a call.
"""

from collections.abc import Mapping

from penstock.client.properties import Properties, read_properties
from penstock.client.transport import DeliveryPort
from penstock.client.values import Value

__all__ = ["ACK", "REJECT", "REQUEUE", "Message"]

ACK, REJECT, REQUEUE = 1, 2, 3


class Message:
    """One delivered message. Each is settled once: ack, nack or reject; a second time does nothing."""

    __slots__ = ("_delivery", "_properties", "body")

    def __init__(self, delivery: DeliveryPort) -> None:
        self._delivery = delivery
        self._properties: Properties | None = None
        self.body: bytes = delivery.body

    @property
    def sequence(self) -> int:
        """The message's number in its queue."""
        return self._delivery.sequence

    @property
    def exchange(self) -> str:
        return self._delivery.exchange

    @property
    def routing_key(self) -> str:
        return self._delivery.routing_key

    @property
    def redelivered(self) -> bool:
        return self._delivery.redelivered

    @property
    def delivery_count(self) -> int:
        """How often the message was requeued before."""
        return self._delivery.delivery_count

    @property
    def stored_at_ms(self) -> int:
        """When the broker stored it, in milliseconds since 1970-01-01 UTC."""
        return self._delivery.stored_at_ms

    @property
    def properties(self) -> Properties:
        found = self._properties
        if found is None:
            found = self._properties = read_properties(self._delivery.properties)
        return found

    @property
    def headers(self) -> Mapping[str, Value]:
        return self.properties.headers

    def ack(self) -> None:
        """Done with: the message leaves the queue."""
        self._delivery.settle(ACK)

    def nack(self, requeue: bool = True) -> None:
        """Not done: back to its place in the queue, or, without requeue, out of it."""
        self._delivery.settle(REQUEUE if requeue else REJECT)

    def reject(self) -> None:
        """Refused for good: the message leaves the queue."""
        self._delivery.settle(REJECT)

    def __repr__(self) -> str:
        return f"<Message {self.sequence} of {len(self.body)} bytes, routing key {self.routing_key!r}>"
