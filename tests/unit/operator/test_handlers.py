"""The watches on an emulated API server: events reach the store and the workers, and kopf itself writes nothing."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import kmock
import kopf
import pytest

from penstock_operator.api import KINDS
from penstock_operator.engine import Key, Store
from penstock_operator.handlers import WATCHED_CHILDREN, affected, configure, register

QUEUES = kmock.resource("penstock.dev", "v1alpha1", "queues")
CLUSTERS = kmock.resource("penstock.dev", "v1alpha1", "clusters")
OURS = "/apis/penstock.dev/v1alpha1/namespaces/default"
VERBS = {"list", "watch", "patch", "create", "delete"}
SECONDS_MAX = 30


class Seen:
    """Keys for the workers."""

    def __init__(self) -> None:
        self.store = Store()
        self.keys: list[Key] = []
        self._changed = asyncio.Event()

    def add(self, key: Key) -> None:
        self.keys.append(key)
        self._changed.set()

    async def wait_for(self, key: Key, count: int = 1) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while self.keys.count(key) < count:
                self._changed.clear()
                await self._changed.wait()


def emulated() -> kmock.KubernetesEmulator:
    """Return an emulator with the operator's kinds; without them kopf waits for ever."""
    emulator = kmock.KubernetesEmulator()
    for kind in KINDS.values():
        resource = kmock.resource("penstock.dev", "v1alpha1", kind.plural)
        emulator.resources[resource] = kmock.ResourceInfo(kind=kind.name, namespaced=True, verbs=VERBS)
    scanned = (("", "v1", "namespaces"), ("apiextensions.k8s.io", "v1", "customresourcedefinitions"))
    for group, version, plural in (*WATCHED_CHILDREN, *scanned):
        is_namespaced = (group, version, plural) not in scanned
        info = kmock.ResourceInfo(kind=plural[:-1].title(), namespaced=is_namespaced, verbs=VERBS)
        emulator.resources[kmock.resource(group, version, plural)] = info
    return emulator


@asynccontextmanager
async def watching(emulator: kmock.KubernetesEmulator, seen: Seen) -> AsyncIterator[aiohttp.ClientSession]:
    """Run the operator's watches; yield a session that changes objects as users do."""
    registry, settings, stop = kopf.OperatorRegistry(), kopf.OperatorSettings(), asyncio.Event()
    register(registry, seen.store, seen.add)
    configure(settings)
    async with kmock.Server(emulator) as server:
        url = str(server.url).rstrip("/")

        async def log_in(**_: Any) -> kopf.ConnectionInfo:
            return kopf.ConnectionInfo(server=url)

        kopf.on.login(registry=registry, id="log-in")(log_in)
        running = asyncio.create_task(
            kopf.operator(registry=registry, settings=settings, standalone=True, clusterwide=True, stop_flag=stop)
        )
        try:
            async with aiohttp.ClientSession(url) as people:
                yield people
        finally:
            stop.set()
            await running


def manifest(kind: str, name: str, **metadata: Any) -> dict[str, Any]:
    about = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "1", **metadata}
    api_version = "v1" if kind == "Secret" else "penstock.dev/v1alpha1"
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": about,
        "spec": {"clusterRef": {"name": "mq"}, "name": name},
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_what_kubernetes_shows_reaches_the_store_and_the_workers_and_nothing_is_written() -> None:
    seen, emulator = Seen(), emulated()
    ours_key = Key("Queue", "default", "ours")
    orders, late, mq = (
        Key(kind, "default", name) for kind, name in (("Queue", "orders"), ("Queue", "late"), ("Cluster", "mq"))
    )

    async def scenario() -> None:
        emulator.objects[QUEUES, "default", "orders"] = manifest("Queue", "orders")
        emulator.objects[CLUSTERS, "default", "mq"] = manifest("Cluster", "mq")
        async with watching(emulator, seen) as people:
            await seen.wait_for(orders)
            await seen.wait_for(mq)
            await people.post(f"{OURS}/queues", json=manifest("Queue", "late"))
            await seen.wait_for(late)
            # Our own write is in the store before the watch shows it.
            ours = manifest("Queue", "ours", resourceVersion="99")
            seen.store.put(ours)
            await people.post(f"{OURS}/queues", json=ours)
            before = seen.keys.count(mq)
            secret = manifest("Secret", "mq-default-user", labels={"penstock.dev/cluster": "mq"})
            await people.post("/api/v1/namespaces/default/secrets", json=secret)
            await seen.wait_for(mq, before + 1)
            await people.delete(f"{OURS}/queues/orders")
            await seen.wait_for(orders, seen.keys.count(orders) + 1)

    asyncio.run(scenario())

    assert seen.store.get(orders) is None
    assert set(seen.store.of_broker(mq)) == {late, ours_key}
    assert ours_key not in seen.keys
    assert seen.store.get(Key("Secret", "default", "mq-default-user")) is not None
    assert len(list(emulator["get"])) > 10
    assert list(emulator["patch"]) + list(emulator["put"]) == []


def test_a_changed_secret_wakes_the_users_that_name_it_and_no_others() -> None:
    store = Store()
    for name, secret in (("web", "passwords"), ("shop", "others")):
        user = manifest("User", name)
        user["spec"]["importCredentialsSecret"] = {"name": secret}
        store.put(user)
    shown: Any = {**manifest("Secret", "passwords", labels={"penstock.dev/cluster": ""}), "data": {"password": "b25l"}}

    assert affected(store, {"type": "ADDED", "object": shown}) == [Key("User", "default", "web")]
    assert affected(store, {"type": "MODIFIED", "object": shown}) == []
    assert affected(store, {"type": "DELETED", "object": shown}) == [Key("User", "default", "web")]


def test_no_attempt_of_a_watch_is_the_last_one() -> None:
    """After the last one kopf ends the operator, for all, because of one watched namespace without its role."""
    settings = kopf.OperatorSettings()
    configure(settings)

    for _ in range(2):
        seconds = list(itertools.islice(settings.networking.error_backoffs, 1_000))  # type: ignore[arg-type]
        assert len(seconds) == 1_000
        assert max(seconds) <= 30
