"""Reads the data directory of a stopped LavinMQ exactly, and changes nothing in it.

Errors name the file and the byte. This package knows LavinMQ's files, but not which of their features this broker
supports.
"""

from penstock.importing.lavinmq.definitions import FoundBinding, FoundExchange, FoundQueue, FoundTopology
from penstock.importing.lavinmq.directory import FoundVhost, LavinDirectory
from penstock.importing.lavinmq.files import Folder
from penstock.importing.lavinmq.messages import FoundMessage, QueueFolder

__all__ = [
    "Folder",
    "FoundBinding",
    "FoundExchange",
    "FoundMessage",
    "FoundQueue",
    "FoundTopology",
    "FoundVhost",
    "LavinDirectory",
    "QueueFolder",
]
