"""Common fields of stored messages, delivered from a queue or read from a stream.

`Stored` are the names, for native objects too; `Received` answers them from the protobuf message that brought it.
Neither knows what may be done with the message.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final

from penstock.client.properties import Properties, read_properties
from penstock.client.values import Value
from penstock.v1 import messaging_pb2

__all__ = ["Received", "Stored"]


class Stored(ABC):
    """A message with where it was published to and when it was stored."""

    __slots__ = ()

    @property
    @abstractmethod
    def body(self) -> bytes: ...

    @property
    @abstractmethod
    def exchange(self) -> str: ...

    @property
    @abstractmethod
    def routing_key(self) -> str: ...

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


class Received(Stored):
    """A message around the protobuf message that brought it."""

    __slots__ = ("_delivery", "_properties", "body")

    def __init__(self, delivery: messaging_pb2.Delivery) -> None:
        self._delivery: Final = delivery
        self._properties: Properties | None = None
        self.body: Final[bytes] = delivery.body

    @property
    def exchange(self) -> str:
        return self._delivery.exchange

    @property
    def routing_key(self) -> str:
        return self._delivery.routing_key

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
