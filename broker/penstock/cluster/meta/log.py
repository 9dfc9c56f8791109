"""The port to the log of the `meta` shard, which the brokers replicate.

A position names a record, and a later record has a higher one; not every number is a position. A broker leads from one
`begin` until a call says otherwise: nothing of a term is appended after the term has ended.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.model.errors import FaultError, Thing

_META = Thing("shard", "meta")


class NotLeaderError(FaultError):
    """This broker does not lead the shard, or leads it no longer. Nothing was appended."""

    def __init__(self) -> None:
        super().__init__(_META, "is led by another broker, or by no broker now", "ask its leader")


class UnknownOutcomeError(FaultError):
    """No answer came: the command may have been carried out, or may be."""

    def __init__(self) -> None:
        super().__init__(_META, "sent no answer in time", "read the state, or send the same request again")


class RecordsRemovedError(FaultError):
    """The log does not have the next records any more. The checkpoint of a broker has what they changed."""

    def __init__(self) -> None:
        super().__init__(_META, "does not have the next records any more", "go on from a checkpoint of another broker")


@dataclass(frozen=True, slots=True)
class Term:
    """The time in which this broker leads without interruption."""

    epoch: int
    begins_after: int
    """The last position that may have been committed before; what follows is this broker's."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A record that no election takes back. Records that the log has for itself have no content."""

    position: int
    content: bytes | None


class MetaLog(Protocol):
    """The log as one broker sees it."""

    async def begin(self) -> Term:
        """Return the term in which this broker leads now. Raises NotLeaderError."""

    async def append(self, term: Term, contents: Sequence[bytes]) -> int:
        """Append records as one, and return the position of the last when they are committed.

        Without records, only confirm that this broker leads. Raises NotLeaderError when nothing was appended and
        nothing will be, UnknownOutcomeError when the term ended on the way.
        """

    async def read_index(self) -> int:
        """Return a position up to which everything was committed that was answered before the call.

        Raises NotLeaderError when no leader says so.
        """

    def committed(self, after: int) -> AsyncIterator[Sequence[Committed]]:
        """Yield the committed records after a position in their order, without an end.

        Raises RecordsRemovedError where the next ones were removed.
        """
