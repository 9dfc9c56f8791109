"""The port to a coordinator: a few records that change by compare-and-set, and sessions of brokers.

Safety rests on `change` alone. A watch may be behind or miss changes, and a session may end while its broker is
alive. A change without an answer has an unknown outcome: it may have been made, or may still be.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NewType, Protocol

from penstock.cluster.record import ShardRecord

Version = NewType("Version", str)
"""The version of a record. Only equality counts."""


@dataclass(frozen=True, slots=True)
class Versioned:
    record: ShardRecord
    version: Version


class Refused(Enum):
    """Why a change has no new version."""

    CONFLICT = "the record has another version"
    UNKNOWN = "no answer came"


class Coordinator(Protocol):
    """A store of shards' records that all brokers of a cluster share. Shards are named by 1 to 200 of `a-z0-9.-`."""

    async def read(self, shard: str) -> Versioned | None:
        """Return a shard's record past all caches; None if there is none.

        Raises:
            StorageError: the coordinator does not answer, or its record is corrupt.
        """

    async def change(self, shard: str, base: Version | None, record: ShardRecord) -> Version | Refused:
        """Store a record in place of the one with the version; None: where there is none. Durable when it returns."""

    def watch(self, shard: str) -> AsyncIterator[Versioned]:
        """Yield a shard's record, and again whenever it changed. Changes in a row may be left out."""

    async def beat(self, broker: str, boot: int) -> None:
        """Say that a broker's process is alive.

        Raises:
            StorageError: the coordinator does not answer.
        """

    async def beats(self) -> Mapping[str, str]:
        """Return for each broker a text that differs after each of its beats.

        Raises:
            StorageError: the coordinator does not answer.
        """
