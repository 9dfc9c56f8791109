"""Drains brokers: one that is drained leads nothing, as long as another broker can.

The metadata says which brokers are drained, so that it lasts until an operator ends it, whatever is started again
meanwhile. Each drained broker hands over by itself what it leads, now and whenever it was elected all the same.
"""

import asyncio
from typing import Final

from penstock.cluster.hosted import HostedReplica
from penstock.cluster.meta.commands import SetDraining
from penstock.cluster.record import BrokerName
from penstock.cluster.shard_calls import HandOver
from penstock.kit.clock import Clock, SystemClock
from penstock.kit.logging import logger
from penstock.metadata.effects import Done
from penstock.node.in_cluster.cluster_view import ClusterView
from penstock.node.in_cluster.tries import Tries
from penstock.storage.cluster_json import META

LOOK_S: Final = 0.5
"""A broker looks as often as this whether it is drained."""
HAND_OVERS_MAX: Final = 16
"""Shards that are handed over at once: a thousand, one after another, would take minutes."""
_log = logger("cluster")


class Draining:
    def __init__(self, view: ClusterView, clock: Clock | None = None) -> None:
        self._view = view
        self._clock = clock or SystemClock()
        self._tries = Tries()

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
        """Hand over some replicas at once, and the metadata last: new leaders ask the metadata's leader."""
        host = self._view.host
        is_drained = self._view.metadata.me in await self._tell()
        led = {replica.shard: replica for replica in host.led()} if is_drained else {}
        self._tries.keep(led.keys())
        at_once = asyncio.Semaphore(HAND_OVERS_MAX)

        async def hand_over(replica: HostedReplica) -> None:
            async with at_once:
                await self._hand_over(replica)

        metadata = host.hosted(META)
        last = None if metadata is None else led.pop(metadata.shard, None)
        await asyncio.gather(*map(hand_over, led.values()))
        if last is not None:
            await self._hand_over(last)

    async def _hand_over(self, replica: HostedReplica) -> None:
        """Hand over a replica if that is still asked for, another broker may lead, and none has refused just now."""
        host, now = self._view.host, self._clock.monotonic()
        draining = await self._tell()
        able = host.heirs_of(replica.shard)
        heirs = frozenset(each for each, broker in able.items() if broker not in draining)
        if self._view.metadata.me not in draining or not heirs or not self._tries.is_due(replica.shard, heirs, now):
            return
        outcome = await host.resign(replica)
        if outcome in (HandOver.NO_HEIR, HandOver.NOT_TAKEN):
            wait_s = self._tries.fail(replica.shard, heirs, self._clock.monotonic())
            _log.warning("not handed over by a broker that is drained", outcome=outcome.value, again_after_s=wait_s)
        else:
            _log.info("handed over by a broker that is drained", outcome=outcome.value)

    async def _tell(self) -> frozenset[BrokerName]:
        """Tell the host which brokers are drained, and return them."""
        brokers = self._view.metadata.state.brokers
        draining = frozenset(name for name, broker in brokers.items() if broker.is_draining)
        self._view.host.draining = draining
        await self._view.host.set_yields(yields=self._view.metadata.me in draining)
        return draining
