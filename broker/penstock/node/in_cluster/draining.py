"""Drains brokers: one that is drained leads nothing, as long as another broker can.

The metadata says which brokers are drained, so that it lasts until an operator ends it, whatever is started again
meanwhile. Each drained broker hands over by itself what it leads, now and whenever it was elected all the same.
"""

import asyncio
from typing import Final

from penstock.cluster.meta.commands import SetDraining
from penstock.cluster.record import BrokerName
from penstock.kit.logging import logger
from penstock.metadata.effects import Done
from penstock.node.in_cluster.cluster_view import ClusterView

LOOK_S: Final = 0.5
"""A broker looks as often as this whether it is drained."""
_log = logger("cluster")


class Draining:
    def __init__(self, view: ClusterView) -> None:
        self._view = view

    async def set(self, broker: BrokerName, *, is_draining: bool) -> bool:
        """Drain a broker, or end that; return whether it changed. Raises NotFoundError and PreconditionFailedError."""
        answer = await self._view.metadata.submit(SetDraining(broker, is_draining))
        return isinstance(answer, Done) and bool(answer.count)

    async def run(self) -> None:
        """Hand over what this broker leads whenever it is drained."""
        while True:
            await self._look()
            await asyncio.sleep(LOOK_S)

    async def _look(self) -> None:
        """Hand over one replica after another, so that the pauses of virtual hosts do not come together.

        With many of them that takes minutes, so it is looked up for each of them who is drained by then.
        """
        host, me = self._view.host, self._view.metadata.me
        draining = await self._tell()
        for replica in host.led() if me in draining else ():
            draining = await self._tell()
            if me not in draining:
                return
            if not draining.issuperset(host.heirs_of(replica.shard).values()):
                outcome = await host.resign(replica)
                _log.info("handed over by a broker that is drained", outcome=outcome.value)

    async def _tell(self) -> frozenset[BrokerName]:
        """Tell the host which brokers are drained, and return them."""
        brokers = self._view.metadata.state.brokers
        draining = frozenset(name for name, broker in brokers.items() if broker.is_draining)
        self._view.host.draining = draining
        await self._view.host.set_yields(yields=self._view.metadata.me in draining)
        return draining
