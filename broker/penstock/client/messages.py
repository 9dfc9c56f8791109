"""A message as its consumer sees it.

Over the native module it is a native object, which is a `Message` because it is registered as one and has the same
names; elsewhere it is a class of Python around what arrived. Settling is its own business: a stream gathers
settlements, a message from `get` settles by a call.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from penstock.client.properties import Properties, read_properties
from penstock.client.values import Value
from penstock.v1 import messaging_pb2

__all__ = ["ACK", "REJECT", "REQUEUE", "Message", "ReceivedMessage"]

ACK, REJECT, REQUEUE = 1, 2, 3


class Message(ABC):
    """One delivered message. Each is settled once: ack, nack or reject; a second time does nothing.

    The verbs here pass on to the message's own, so that `Message.ack` as a function serves every kind.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def body(self) -> bytes: ...

    @property
    @abstractmethod
    def sequence(self) -> int:
        """The message's number in its queue."""

    @property
    @abstractmethod
    def exchange(self) -> str: ...

    @property
    @abstractmethod
    def routing_key(self) -> str: ...

    @property
    @abstractmethod
    def redelivered(self) -> bool: ...

    @property
    @abstractmethod
    def delivery_count(self) -> int:
        """How often the message was requeued before."""

    @property
    @abstractmethod
    def stored_at_ms(self) -> int:
        """When the broker stored it, in milliseconds since 1970-01-01 UTC."""

    @property
    @abstractmethod
    def properties(self) -> Properties:
        """Decoded when first asked for."""

    @property
    @abstractmethod
    def headers(self) -> Mapping[str, Value]: ...

    @abstractmethod
    def ack(self) -> None:
        """Done with: the message leaves the queue."""
        self.ack()

    @abstractmethod
    def nack(self, requeue: bool = True) -> None:
        """Not done: back to its place in the queue, or, without requeue, out of it."""
        self.nack(requeue)

    @abstractmethod
    def reject(self) -> None:
        """Refused for good: the message leaves the queue."""
        self.reject()


class ReceivedMessage(Message):
    """A message around the protobuf message that brought it. How it is settled is for a subclass to say."""

    __slots__ = ("_delivery", "_is_settled", "_properties", "body")

    def __init__(self, delivery: messaging_pb2.Delivery, is_settled: bool = False) -> None:
        self._delivery = delivery
        self._properties: Properties | None = None
        self._is_settled = is_settled
        self.body: bytes = delivery.body

    @property
    def sequence(self) -> int:
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
        return self._delivery.delivery_count

    @property
    def stored_at_ms(self) -> int:
        return self._delivery.stored_at_ms

    @property
    def properties(self) -> Properties:
        found = self._properties
        if found is None:
            found = self._properties = read_properties(self._delivery.properties.SerializeToString())
        return found

    @property
    def headers(self) -> Mapping[str, Value]:
        return self.properties.headers

    def ack(self) -> None:
        self._settle_once(ACK)

    def nack(self, requeue: bool = True) -> None:
        self._settle_once(REQUEUE if requeue else REJECT)

    def reject(self) -> None:
        self._settle_once(REJECT)

    def _settle_once(self, outcome: int) -> None:
        if not self._is_settled:
            self._is_settled = True
            self._settle(outcome)

    @abstractmethod
    def _settle(self, outcome: int) -> None: ...

    def __repr__(self) -> str:
        return f"<Message {self.sequence} of {len(self.body)} bytes, routing key {self.routing_key!r}>"
