"""The brokers of the cluster as the metadata has them: where they are, and that each has a replica of the metadata.

A broker that was added is known by that before it has joined, so that it is connected and its replica is fed. One that
was removed is forgotten. The settings say where the others are until this broker has joined; what they say themselves
after that counts more. A restored cluster has other addresses than its metadata.
"""

import asyncio
from collections.abc import Collection
from typing import Final

from penstock.cluster.host import ClusterHost
from penstock.cluster.meta.member import MetaMember
from penstock.cluster.record import BrokerName
from penstock.storage.cluster_json import META

LOOK_S: Final = 0.3
"""The metadata is compared with what was told as often as this."""


class Members:
    def __init__(self, host: ClusterHost, member: MetaMember, configured: Collection[BrokerName]) -> None:
        """Take the brokers of the settings, whose addresses were told."""
        self._host = host
        self._member = member
        self._configured = frozenset(configured)
        self._has_joined = False
        self._addresses: dict[BrokerName, str] = {}
        self._placed: tuple[BrokerName, ...] = ()
        self._was_named = False

    async def run(self) -> None:
        """Tell connections and the replica of the metadata which brokers there are, whenever that changes."""
        while True:
            await self._tell()
            await asyncio.sleep(LOOK_S)

    async def _tell(self) -> None:
        state, me = self._member.state, self._host.me.name
        at = self._addresses_in_metadata()
        for name in at.keys() - {me}:
            if self._addresses.get(name) != at[name]:
                self._host.set_peer(name, at[name])
        for name in self._addresses.keys() - state.brokers.keys() - {me}:
            self._host.forget_peer(name)
        self._addresses = at
        placed = tuple(sorted(state.brokers)) if state.has_begun else ()
        replica = self._host.hosted(META)
        if placed != self._placed and replica is not None:
            await self._host.place(replica, placed)
            self._placed = placed

    def join(self) -> None:
        """Hear that this broker has joined: later changes in the metadata count for all brokers."""
        self._has_joined = True
        found = self._addresses_in_metadata()
        self._addresses |= {name: at for name, at in found.items() if name in self._configured}

    def _addresses_in_metadata(self) -> dict[BrokerName, str]:
        brokers = self._member.state.brokers.items()
        known = {name: broker.addresses.peers for name, broker in brokers if broker.addresses.peers}
        return {name: at for name, at in known.items() if self._has_joined or name not in self._configured}

    def is_removed(self) -> bool:
        """Return whether this broker was of the cluster and is not any more.

        It may have been taken out of the shard of the metadata before it heard of that.
        """
        me, record = self._host.me.name, self._host.known_record(META)
        is_named = record is None or me in record.replicas.values()
        self._was_named |= record is not None and is_named
        return me not in self._member.state.brokers or (self._was_named and not is_named)
