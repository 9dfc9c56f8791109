"""The Python client.

It speaks to a broker over gRPC only: through the native module where that is there, else through grpcio.
"""

from penstock.client.consuming import AsyncConsumption, Consumption
from penstock.client.messages import Message
from penstock.client.properties import PERSISTENT, TRANSIENT, Properties
from penstock.client.reading import AsyncStreamReader, StreamReader
from penstock.client.stream import Stream, StreamPublisher
from penstock.client.stream_messages import StreamMessage
from penstock.client.sync import Connection, connect
from penstock.client.uri import Address, format_uri, parse_uri
from penstock.client.values import Timestamp, Value

__all__ = [
    "PERSISTENT",
    "TRANSIENT",
    "Address",
    "AsyncConsumption",
    "AsyncStreamReader",
    "Connection",
    "Consumption",
    "Message",
    "Properties",
    "Stream",
    "StreamMessage",
    "StreamPublisher",
    "StreamReader",
    "Timestamp",
    "Value",
    "connect",
    "format_uri",
    "parse_uri",
]
