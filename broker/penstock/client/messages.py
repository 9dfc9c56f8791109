"""A message as its consumer sees it.

Over the native module it is a native object, which is a `Message` because it is registered as one and has the same
names; elsewhere it is a class of Python around what arrived. Settling is its own business: a stream gathers
settlements, a message from `get` settles by a call.
"""

from abc import abstractmethod

from penstock.client.stored import Received, Stored
from penstock.v1 import messaging_pb2

__all__ = ["ACK", "REJECT", "REQUEUE", "Message", "ReceivedMessage"]

ACK, REJECT, REQUEUE = 1, 2, 3


class Message(Stored):
    """One delivered message. Each is settled once: ack, nack or reject; a second time does nothing.

    The verbs here pass on to the message's own, so that `Message.ack` as a function serves every kind.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def sequence(self) -> int:
        """The message's number in its queue."""

    @property
    @abstractmethod
    def redelivered(self) -> bool:
        """Whether the message may have been delivered before."""

    @property
    @abstractmethod
    def delivery_count(self) -> int:
        """How often the message was requeued before."""

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


class ReceivedMessage(Received, Message):
    """A message around the protobuf message that brought it. How it is settled is for a subclass to say."""

    __slots__ = ("_is_settled",)

    def __init__(self, delivery: messaging_pb2.Delivery, is_settled: bool = False) -> None:
        super().__init__(delivery)
        self._is_settled = is_settled

    @property
    def sequence(self) -> int:
        return self._delivery.sequence

    @property
    def redelivered(self) -> bool:
        return self._delivery.redelivered

    @property
    def delivery_count(self) -> int:
        return self._delivery.delivery_count

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
