"""Reads the data directory of a stopped LavinMQ, to the byte, and changes nothing in it. What cannot be read is named
by its file and byte. It knows LavinMQ's files and not what of them this broker can honour."""

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
