"""A message as a stream's reader sees it: there is nothing to settle, and its offset names it for ever.

Over the native module it is a native object, which is a `StreamMessage` because it is registered as one and has the
same names; elsewhere it is a class of Python around what arrived.
"""

from abc import abstractmethod
from datetime import UTC, datetime
from typing import Final

from penstock.client.stored import Received, Stored
from penstock.v1 import messaging_pb2

__all__ = ["ReceivedStreamMessage", "StreamMessage"]


class StreamMessage(Stored):
    """One message of one partition."""

    __slots__ = ()

    @property
    @abstractmethod
    def offset(self) -> int:
        """The message's offset in its partition."""

    @property
    @abstractmethod
    def partition(self) -> str:
        """The name of the partition."""

    @property
    @abstractmethod
    def key(self) -> bytes | None:
        """The key that chose the partition; None for a message without one."""

    @property
    @abstractmethod
    def stored_at(self) -> datetime:
        """When the broker stored it, in UTC."""


class ReceivedStreamMessage(Received, StreamMessage):
    """A message around the protobuf message that brought it."""

    __slots__ = ("offset", "partition")

    def __init__(self, delivery: messaging_pb2.Delivery, partition: str) -> None:
        super().__init__(delivery)
        self.offset: Final[int] = delivery.sequence
        self.partition: Final = partition

    @property
    def key(self) -> bytes | None:
        return self._delivery.key if self._delivery.HasField("key") else None

    @property
    def stored_at(self) -> datetime:
        return datetime.fromtimestamp(self._delivery.stored_at_ms / 1_000, UTC)

    def __repr__(self) -> str:
        return f"<StreamMessage {self.offset} of {self.partition}, {len(self.body)} bytes>"
