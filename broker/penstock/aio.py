"""Penstock for asyncio: `async with penstock.aio.connect(uri) as connection`."""

from penstock.client.aio import Connection, connect
from penstock.client.aio_stream import AsyncStream, AsyncStreamPublisher
from penstock.client.consuming import AsyncConsumption
from penstock.client.reading import AsyncStreamReader

__all__ = [
    "AsyncConsumption",
    "AsyncStream",
    "AsyncStreamPublisher",
    "AsyncStreamReader",
    "Connection",
    "connect",
]
