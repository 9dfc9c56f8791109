"""A message as a stream's reader sees it: there is nothing to settle, and its offset names it for ever.

Over the native module it is a native object, which is a `StreamMessage` because it is registered as one and has the
same names; elsewhere it is a class of Python around what arrived.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from penstock.client.properties import Properties, read_properties
from penstock.client.values import Value
from penstock.v1 import messaging_pb2

__all__ = ["ReceivedStreamMessage", "StreamMessage"]


class StreamMessage(ABC):
    """One message of one partition."""

    __slots__ = ()

    @property
    @abstractmethod
    def body(self) -> bytes: ...

    @property
    @abstractmethod
    def offset(self) -> int: ...

    @property
    @abstractmethod
    def partition(self) -> str: ...

    @property
    @abstractmethod
    def key(self) -> bytes | None: ...

    @property
    @abstractmethod
    def stored_at(self) -> datetime:
        """When the broker stored it, in UTC."""

    @property
    @abstractmethod
    def stored_at_ms(self) -> int: ...

    @property
    @abstractmethod
    def exchange(self) -> str: ...

    @property
    @abstractmethod
    def routing_key(self) -> str: ...

    @property
    @abstractmethod
    def properties(self) -> Properties:
        """Decoded when first asked for."""

    @property
    @abstractmethod
    def headers(self) -> Mapping[str, Value]: ...


class ReceivedStreamMessage(StreamMessage):
    """A message around the protobuf message that brought it."""

    __slots__ = ("_delivery", "_properties", "body", "offset", "partition")

    def __init__(self, delivery: messaging_pb2.Delivery, partition: str) -> None:
        self._delivery: Final = delivery
        self._properties: Properties | None = None
        self.body: Final[bytes] = delivery.body
        self.offset: Final[int] = delivery.sequence
        self.partition: Final = partition

    @property
    def key(self) -> bytes | None:
        return self._delivery.key if self._delivery.HasField("key") else None

    @property
    def stored_at(self) -> datetime:
        return datetime.fromtimestamp(self._delivery.stored_at_ms / 1_000, UTC)

    @property
    def stored_at_ms(self) -> int:
        return self._delivery.stored_at_ms

    @property
    def exchange(self) -> str:
        return self._delivery.exchange

    @property
    def routing_key(self) -> str:
        return self._delivery.routing_key

    @property
    def properties(self) -> Properties:
        found = self._properties
        if found is None:
            found = self._properties = read_properties(self._delivery.properties.SerializeToString())
        return found

    @property
    def headers(self) -> Mapping[str, Value]:
        return self.properties.headers

    def __repr__(self) -> str:
        return f"<StreamMessage {self.offset} of {self.partition}, {len(self.body)} bytes>"
