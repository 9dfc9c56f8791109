"""All virtual hosts of a broker, as services see them: those of one broker, or of a cluster that it is in."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from penstock.model.names import ConnectionId, VhostName
from penstock.native import VhostCounts
from penstock.vhost.rights import Rights
from penstock.vhost.vhost import Vhost


class AllVhosts(Protocol):
    """A vhost that is being created or deleted cannot be used meanwhile."""

    def get(self, name: VhostName, /) -> Vhost:
        """Return a virtual host. Raises NotFoundError."""
        ...

    def all(self) -> list[Vhost]:
        """In the order in which they were made."""
        ...

    def by_name(self) -> Mapping[VhostName, Vhost]: ...
    def names(self) -> list[VhostName]: ...

    async def totals(self) -> Mapping[VhostName, VhostCounts]:
        """Return the messages in the queues of each virtual host that are not streams, as far as they are known."""
        ...

    async def create(
        self, rights: Rights, name: str, shard_count: int = 1, default_queue_type: str | None = None, /
    ) -> bool:
        """Return whether it is new. One that exists only gets the default queue type, if one is given."""
        ...

    async def make(self, name: VhostName, shard_count: int = 1, /) -> bool:
        """`create` without asking who wants it."""
        ...

    async def set_shard_count(self, rights: Rights, name: VhostName, shard_count: int, /) -> None:
        """Give a vhost more shards."""
        ...

    async def delete(self, rights: Rights, name: VhostName, /) -> None:
        """Delete a vhost with its queues, messages and limits, and every permission in it."""
        ...

    def keep(self) -> AbstractContextManager[list[Vhost]]:
        """Yield all virtual hosts; none can be deleted before it is released."""
        ...

    def release(self, name: VhostName, /) -> None:
        """Let a virtual host that was kept be deleted."""
        ...

    async def connection_closed(self, connection: ConnectionId, /) -> None:
        """Delete the connection's exclusive queues in every vhost."""
        ...

    async def delete_producers_of(self, user: str, /) -> None:
        """Delete the producers that a user owns, in every vhost."""
        ...
