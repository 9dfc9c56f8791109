"""The port to a coordinator: a few records that change by compare-and-set, and sessions of brokers.

Safety rests on `change` alone. A watch may be behind or miss changes, and a session may end while its broker is
alive. A change without an answer has an unknown outcome: it may have been made, or may still be. A backend whose answer
is lost reads the record once more, because most often that shows that the change was made.

Each change draws its version at random, so that none comes back, also when the coordinator is restored from a copy.
"""

import re
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Final, NewType, Protocol

from penstock.cluster.record import ShardRecord
from penstock.model.errors import StorageError, Thing

Version = NewType("Version", str)
"""The version of a record. Only equality counts."""


@dataclass(frozen=True, slots=True)
class Versioned:
    record: ShardRecord
    version: Version


class UnreachableError(StorageError):
    """The coordinator does not answer."""

    def __init__(self, thing: Thing, rule: str) -> None:
        super().__init__(thing, rule, "check it and the network; leaders go on, and none is elected meanwhile")


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

    def watch(self, shard: str) -> AsyncGenerator[Versioned, None]:
        """Yield a shard's record, and again whenever it changed. Changes in a row may be left out.

        While the coordinator does not answer, it waits; it ends with `close`. Raises StorageError for a corrupt record.
        All watches of a process share one of the coordinator: close one that is left before its end.
        """

    async def beat(self, broker: str, boot: int) -> None:
        """Say that a broker's process is alive.

        Raises:
            StorageError: the coordinator does not answer.
        """

    async def close(self) -> None:
        """End the watches, and close the connections."""

    async def beats(self) -> Mapping[str, str]:
        """Return for each broker a text that differs after each of its beats.

        Raises:
            StorageError: the coordinator does not answer.
        """


_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,199}")


def check_name(kind: str, name: str) -> str:
    """Return a name that every backend can store."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{kind} {name!r}: a name has 1 to 200 of a-z, 0-9, '.' and '-', first a letter or digit")
    return name


def draw_version() -> Version:
    """Return a version that no record had."""
    return Version(secrets.token_hex(16))


async def changed_or_unknown(found: Callable[[], Awaitable[Versioned | None]], drawn: Version) -> Version | Refused:
    """Return the outcome of a change without an answer, as far as one more read shows it.

    Another version says nothing: the change may have been made and replaced since, or may still be made.
    """
    with suppress(UnreachableError):
        now = await found()
        if now is not None and now.version == drawn:
            return drawn
    return Refused.UNKNOWN
