"""Penstock for asyncio: `async with penstock.aio.connect(uri) as connection`."""

from penstock.client.aio import Connection, connect
from penstock.client.consuming import AsyncConsumption

__all__ = ["AsyncConsumption", "Connection", "connect"]
