"""Coordinators over a network for tests, directly and behind a proxy, and records for them."""

import asyncio
import base64
import functools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, ParamSpec

from penstock.cluster.api import JsonApi
from penstock.cluster.coordinator import Coordinator, Refused, Version
from penstock.cluster.etcd import EtcdCoordinator
from penstock.cluster.kubernetes import KubernetesCoordinator
from penstock.cluster.record import Leader, ShardRecord
from support.coordinators import FaultyProxy

P = ParamSpec("P")
REPLICAS = [f"{number:032x}" for number in range(1, 4)]
SHARDS: Final = "/apis/penstock.dev/v1alpha1/namespaces/default/shards"


@dataclass
class Remote:
    """A server, and how a coordinator of it is made for an address. Each test has its own place in it."""

    server: str
    kind: str
    place: str

    def make(self, address: str, request_s: float = 30.0, poll_s: float = 5.0) -> Coordinator:
        if self.kind == "etcd":
            return EtcdCoordinator([address], self.place, request_s=request_s, poll_s=poll_s)
        return KubernetesCoordinator(JsonApi([address], request_s=request_s), "default", self.place, poll_s=poll_s)

    async def compact(self) -> None:
        """Forget the changes before now. The API server of tests keeps few, so it does that by itself."""
        if self.kind == "etcd":
            found = await self._ask("POST", "/v3/kv/range", {"key": _base64(b"x")})
            await self._ask("POST", "/v3/kv/compaction", {"revision": found["header"]["revision"]})

    async def corrupt(self, shard: str) -> None:
        if self.kind == "etcd":
            key = _base64(f"{self.place}/shards/{shard}".encode())
            await self._ask("POST", "/v3/kv/put", {"key": key, "value": _base64(b"{\xff")})
        else:
            path = f"{SHARDS}/{self.place}.{shard}"
            found = await self._ask("GET", path)
            await self._ask("PUT", path, {**found, "spec": {"version": "x"}})

    async def add_foreign(self) -> None:
        """Add what is no shard of the cluster, where its shards are."""
        if self.kind == "etcd":
            key = _base64(f"{self.place}/shards/".encode() + b"\xff")
            await self._ask("POST", "/v3/kv/put", {"key": key, "value": _base64(b"{}")})
        else:
            labels = {"penstock.dev/coordinated-cluster": self.place}
            await self._ask("POST", SHARDS, {"metadata": {"name": "orders.0", "labels": labels}, "spec": {}})

    async def _ask(self, method: str, path: str, body: object = None) -> Mapping[str, Any]:
        api = JsonApi([self.server])
        try:
            reply = await api.ask(method, path, body)
        finally:
            await api.close()
        assert reply.status in (200, 201), reply
        return reply.value


@dataclass
class Ends:
    """Coordinators of one server: behind a proxy, also without patience or with lists that are seldom, and directly."""

    behind: Coordinator
    impatient: Coordinator
    seldom: Coordinator
    direct: Coordinator
    proxy: FaultyProxy
    remote: Remote


def through_proxy(test: Callable[[Ends], Awaitable[None]]) -> Callable[[Remote], None]:
    def run(remote: Remote) -> None:
        async def opened() -> None:
            async with FaultyProxy(remote.server).serving() as proxy:
                behind = remote.make(proxy.address, poll_s=0.2)
                impatient = remote.make(proxy.address, request_s=0.2)
                seldom = remote.make(proxy.address, poll_s=3600.0)
                direct = remote.make(remote.server, poll_s=0.2)
                try:
                    await test(Ends(behind, impatient, seldom, direct, proxy, remote))
                finally:
                    for coordinator in (behind, impatient, seldom, direct):
                        await coordinator.close()

        asyncio.run(asyncio.wait_for(opened(), 60))

    run.__name__ = test.__name__
    return run


def in_loop(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 60))

    return run


def record(epoch: int = 1, *, boot: int = 7, in_sync: int = 3) -> ShardRecord:
    replicas = {replica: f"mq-{number}" for number, replica in enumerate(REPLICAS)}
    leader = Leader(broker="mq-0", replica=REPLICAS[0], boot=boot)
    return ShardRecord(epoch=epoch, leader=leader, in_sync=tuple(REPLICAS[:in_sync]), replicas=replicas, min_in_sync=2)


async def changed(coordinator: Coordinator, base: Version | None, new: ShardRecord, shard: str = "orders.0") -> Version:
    version = await coordinator.change(shard, base, new)
    assert not isinstance(version, Refused)
    return version


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
