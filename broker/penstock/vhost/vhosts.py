"""All virtual hosts of this broker: opening, creating and deleting them.

A vhost that is being created or deleted cannot be used meanwhile, and two such changes of one name never overlap.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from penstock.metadata import VhostTopology, changes_of, check_shard_count, restore
from penstock.model.errors import FaultError, NotFoundError, PreconditionFailedError, StoppedError, StorageError, Thing
from penstock.model.names import ConnectionId, VhostName
from penstock.native import Shard, VhostCounts
from penstock.vhost import creation
from penstock.vhost.apply import apply_changes
from penstock.vhost.owner import Owner
from penstock.vhost.ports import OpenedVhost, Spawn, VhostsStorage
from penstock.vhost.rights import Rights
from penstock.vhost.vhost import Vhost


class Vhosts:
    """Invariant: every vhost in `_vhosts` has its owner running, or stopped by a fault, and its shard open."""

    def __init__(self, storage: VhostsStorage, spawn: Spawn, make_token: Callable[[], str]) -> None:
        self._storage = storage
        self._spawn = spawn
        self._make_token = make_token
        self._vhosts: dict[VhostName, Vhost] = {}
        self._shards: dict[VhostName, Shard] = {}
        self._changing: set[VhostName] = set()
        self._kept: set[VhostName] = set()

    async def open_all(self) -> None:
        """Every vhost that the storage names, in its order."""
        for name in await self._storage.names():
            await self._take_in(await self._storage.open(name))

    def get(self, name: VhostName) -> Vhost:
        vhost = self._vhosts.get(name)
        if vhost is None:
            raise NotFoundError(Thing("vhost", name), "create it first or check the name")
        return vhost

    def all(self) -> list[Vhost]:
        """In the order in which they were made."""
        return list(self._vhosts.values())

    def by_name(self) -> Mapping[VhostName, Vhost]:
        return self._vhosts

    def names(self) -> list[VhostName]:
        return list(self._vhosts)

    async def totals(self) -> Mapping[VhostName, VhostCounts]:
        """Return the messages in each virtual host."""
        found: dict[VhostName, VhostCounts] = {}
        for name, vhost in self._vhosts.items():
            with suppress(FaultError):  # one that has stopped hides none of the others
                found[name] = vhost.totals()
        return found

    async def create(
        self, rights: Rights, name: str, shard_count: int = 1, default_queue_type: str | None = None
    ) -> bool:
        """Return whether it is new. One that exists only gets the default queue type, if one is given."""
        return await creation.create(self, rights, name, shard_count, default_queue_type)

    async def make(self, name: VhostName, shard_count: int = 1) -> bool:
        """`create` without asking who wants it: for the first start and for imports."""
        if name in self._vhosts:
            return False
        with self._change(name):
            await self._take_in(await self._storage.create(name, shard_count))
        return True

    async def set_shard_count(self, rights: Rights, name: VhostName, shard_count: int) -> None:
        """Give a vhost more shards. New queues are placed in all of them; a queue that exists stays where it is."""
        thing = Thing("vhost", name)
        rights.require_administrator(thing)
        check_shard_count(thing, shard_count)
        if name in self._kept:
            raise PreconditionFailedError(thing, "is being copied by a backup", "add shards when the backup has ended")
        with self._change(name):
            await self.get(name).grow(shard_count)

    async def delete(self, rights: Rights, name: VhostName) -> None:
        """Delete a vhost with its queues, messages and limits, and every permission in it.

        A start completes a deletion that is interrupted, and so does another call when a step failed.
        """
        rights.require_administrator(Thing("vhost", name))
        if name in self._kept:
            raise PreconditionFailedError(
                Thing("vhost", name), "is being copied by a backup", "delete it when the backup has ended"
            )
        with self._change(name):
            if not self._storage.is_being_deleted(name):
                self.get(name)
            try:
                await self._storage.begin_deletion(name)
            except StorageError:
                if self._storage.is_being_deleted(name):  # a start may find it, and delete what is stored from now on
                    await self._take_out(name)
                raise
            await self._take_out(name)
            await self._storage.delete(name)

    @contextmanager
    def keep(self) -> Iterator[list[Vhost]]:
        """Yield all virtual hosts; none can be deleted before it is released. Only one backup runs at a time."""
        for name in self._changing & self._vhosts.keys():
            raise PreconditionFailedError(
                Thing("vhost", name), "is being changed or deleted by another call", "retry when it has ended"
            )
        self._kept = set(self._vhosts)
        try:
            yield self.all()
        finally:
            self._kept = set()

    def release(self, name: VhostName) -> None:
        """Let a virtual host that was kept be deleted: its copy is written."""
        self._kept.discard(name)

    async def connection_closed(self, connection: ConnectionId) -> None:
        """Delete the connection's exclusive queues in every vhost.

        A vhost that waits for its disk delays no other. A stopped vhost has lost them anyway.
        """
        concerned = [vhost for vhost in self.all() if vhost.may_have_queues_of(connection)]
        ends = (vhost.connection_closed(connection) for vhost in concerned)
        for end in await asyncio.gather(*ends, return_exceptions=True):
            if isinstance(end, BaseException) and not isinstance(end, StoppedError):
                raise end

    async def delete_producers_of(self, user: str) -> None:
        """Delete the producers that a user owns, in every vhost, also when one of them fails.

        Raises the first fault, but none of a vhost that was deleted meanwhile.
        """
        concerned = self.all()
        ends = await asyncio.gather(
            *(vhost.streams.delete_producers_of(user) for vhost in concerned), return_exceptions=True
        )
        for vhost, end in zip(concerned, ends, strict=True):
            if isinstance(end, BaseException) and (
                not isinstance(end, FaultError) or self._vhosts.get(vhost.name) is vhost
            ):
                raise end

    async def close(self) -> None:
        """End the owners; the engine closes the shards."""
        for vhost in self.all():
            await vhost.close("the broker stops")

    async def _take_in(self, opened: OpenedVhost) -> None:
        topology = await asyncio.to_thread(_restore, opened)
        owner = Owner(topology, opened.shard, opened.definitions)
        self._spawn(owner.run(), name=f"owner of vhost {opened.name}")
        self._vhosts[opened.name] = Vhost(owner, self._make_token)
        self._shards[opened.name] = opened.shard

    async def _take_out(self, name: VhostName) -> None:
        """End the use of a vhost that is deleted, or may be."""
        vhost, shard = self._vhosts.pop(name, None), self._shards.pop(name, None)
        if vhost is not None and shard is not None:
            await vhost.close("it was deleted")
            with suppress(StorageError):  # the disk of a vhost that is deleted may fail
                await asyncio.to_thread(shard.close, delete=False)

    @contextmanager
    def _change(self, name: VhostName) -> Iterator[None]:
        if name in self._changing:
            raise PreconditionFailedError(
                Thing("vhost", name), "is being created, changed or deleted by another call", "retry when it has ended"
            )
        self._changing.add(name)
        try:
            yield
        finally:
            self._changing.discard(name)


def _restore(opened: OpenedVhost) -> VhostTopology:
    """Bring the engine to the state of the definitions. It runs on a thread: each policy is matched with each name."""
    shard = opened.shard
    topology = restore(opened.name, opened.entries, shard.highest_queue_id, shard.shard_count)
    queues = topology.queues.values()
    opened.shard.retain_queues([queue.id for queue in queues], [queue.max_priority for queue in queues])
    apply_changes(opened.shard, changes_of(topology))
    opened.shard.complete()
    opened.shard.carry_on_staged()
    return topology
