"""Brokers that an operator adds to the cluster, or removes from it.

The metadata has the brokers, so that is one command each. A broker is removed only when no virtual host has a replica
there and the metadata can do without it: the coordinator is asked for that, because the metadata knows where replicas
are to be, not where they are.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from penstock.cluster.meta.commands import AddBroker, RemoveBroker
from penstock.cluster.record import BrokerName
from penstock.metadata.effects import Done
from penstock.model.errors import NotFoundError, PreconditionFailedError, Thing
from penstock.node.in_cluster.cluster_view import ClusterView
from penstock.storage.cluster_json import META

READS_MAX: Final = 16
"""Questions to the coordinator at once."""


class BrokerChanges:
    def __init__(self, view: ClusterView) -> None:
        self._view = view

    async def add(self, broker: BrokerName, peers: str) -> bool:
        """Let a broker join; return whether that is new. Raises RefusedError and UnknownOutcomeError."""
        answer = await self._view.metadata.submit(AddBroker(broker, peers))
        return isinstance(answer, Done) and bool(answer.count)

    async def remove(self, broker: BrokerName) -> None:
        """Forget a broker without replicas of virtual hosts.

        Raises NotFoundError, PreconditionFailedError, StorageError without the coordinator, and UnknownOutcomeError.
        """
        state, thing = self._view.metadata.state, Thing("broker", broker)
        if broker not in state.brokers:
            raise NotFoundError(thing, "list the brokers with `penstock cluster status`")
        await self._check_metadata(broker)
        shards = {shard: vhost for vhost in state.vhosts for shard in state.shards_of(vhost)}
        held = [shard for shard in shards if broker in state.placement[shard]] or await self._held(broker, shards)
        if held:
            rule, way_out = f"has a replica of vhost '{shards[held[0]]}'", "move its replicas to other brokers first"
            raise PreconditionFailedError(thing, rule, way_out)
        await self._view.metadata.submit(RemoveBroker(broker))

    async def _check_metadata(self, broker: BrokerName) -> None:
        """Raise PreconditionFailedError unless the metadata is in sync on all other brokers that have joined."""
        record = await self._view.host.read_record(META)
        in_sync = set() if record is None else {record.replicas[replica] for replica in record.in_sync}
        brokers = self._view.metadata.state.brokers.values()
        behind = [each.broker for each in brokers if each.boot and each.broker not in {*in_sync, broker}]
        if behind or not in_sync - {broker}:
            rule = f"is needed for the metadata, which is not in sync at broker '{min(behind, default='')}'"
            way_out = "wait until `penstock cluster status` shows it in sync, or remove that broker first"
            raise PreconditionFailedError(Thing("broker", broker), rule, way_out)

    async def _held(self, broker: BrokerName, shards: Iterable[str]) -> list[str]:
        """Return the shards whose records name a broker."""
        at_once = asyncio.Semaphore(READS_MAX)

        async def is_held(shard: str) -> bool:
            async with at_once:
                record = await self._view.host.read_record(shard)
            return record is not None and broker in record.replicas.values()

        names = list(shards)
        found = await asyncio.gather(*map(is_held, names))
        return [name for name, is_there in zip(names, found, strict=True) if is_there]
